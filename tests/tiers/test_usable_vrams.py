"""The VRAM that a plan may use, and the settings that all ranks take from the first one."""

import pytest
from msgspec.structs import replace
from tier_cases import CONFIG, GIB, MACHINE, SETTINGS

from sharpi.config import Device, KvTypes
from sharpi.tiers.settings import usable_vrams


@pytest.mark.parametrize(
    ("device", "vram", "free", "expected"),
    [
        ("auto", None, 10 * GIB, (10 * GIB,)),
        ("auto", GIB, 10 * GIB, (GIB,)),
        ("auto", 20 * GIB, 10 * GIB, (10 * GIB,)),
        ("cuda", GIB, 10 * GIB, (GIB,)),
        ("cpu", GIB, 10 * GIB, ()),
        ("auto", GIB, 0, (GIB,)),  # a GPU that is not there may be planned for
        ("auto", None, 0, ()),
    ],
)
def test_memory_of_the_gpu(
    device: Device, vram: int | None, free: int, expected: tuple[int, ...]
) -> None:
    config = replace(CONFIG, device=device, vram=vram)
    assert usable_vrams(config, replace(MACHINE, free_vram=free)) == expected


def test_several_gpus_have_limits_of_their_own() -> None:
    named = replace(CONFIG, gpus=(0, 1), vrams=(GIB, 3 * GIB))
    assert usable_vrams(named, replace(MACHINE, free_vrams=(2 * GIB, 2 * GIB))) == (GIB, 2 * GIB)
    assert usable_vrams(named, MACHINE) == (GIB, 3 * GIB)


def test_ranks_share_what_decides_results_and_keep_what_is_of_their_machine() -> None:
    first = replace(
        SETTINGS, context_size=999, rounding="int16", kv_types=KvTypes("q8_0", "q4_0"),
        max_drafts=3, num_threads=64, instruction_set="avx512_vnni", kv_keep=7,
    )  # fmt: skip
    assert SETTINGS.of_first_rank(first) == replace(
        first, num_threads=1, instruction_set="avx2", kv_keep=0
    )
