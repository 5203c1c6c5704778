"""Chooses the tests of launchers that also run as PTX whenever tests run, and for which GPU.

Files take turns over the architectures, as all of them would take minutes: SHARPI_PTX=90 runs all
tests as PTX of sm_90. Of a test with parameters only some are chosen. What multiplies on tensor
cores differs between sm_75 and later ones, so both are run.
"""

import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

ARCHITECTURES = (75, 80, 90)
ON_TENSOR_CORES = ("tile", "tensor_core")
STEP = 48  # of a test's parameters, of which the last is chosen, too
OTHER_FILES = ("test_slot_tables", "test_gpu_limits")
# They launch kernels that others launch, many times.
LEFT_OUT = (
    "test_bits_do_not_depend_on_the_launch",
    "test_chunks_follow_each_other_and_single_steps",
    "test_chunks_give_what_single_steps_do",
    "test_extreme_codes",
    "test_more_rows_than_a_grid_has_in_y",
    "test_sequences_have_pages_of_their_own",
    "test_sequences_have_states_of_their_own",
    "test_transformed_values_are_rounded_once_more",
)


def devices_of(path: Path, function: str) -> list[str]:
    """Returns the names of architectures, "sm_75", that a test also runs for."""
    if not ("launchers" in path.parts or path.stem in OTHER_FILES) or function in LEFT_OUT:
        return []
    if any(word in f"{path.stem} {function}" for word in ON_TENSOR_CORES):
        return ["sm_75", "sm_90"]
    return [f"sm_{ARCHITECTURES[zlib.crc32(path.stem.encode()) % len(ARCHITECTURES)]}"]


def left_out(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Returns the tests of PTX that are not chosen: of each function and device all but some."""
    seen: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        callspec = getattr(item, "callspec", None)
        name = callspec.params.get("device") if callspec else None
        if not isinstance(name, str) or not name.startswith("sm_"):
            continue
        key = (str(item.path) + getattr(item, "originalname", item.name), name)
        seen.setdefault(key, []).append(item)
    return [
        item
        for several in seen.values()
        for index, item in enumerate(several)
        if index % STEP and index + 1 < len(several)
    ]
