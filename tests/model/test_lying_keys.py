"""Every key that an architecture reads, missing, of a wrong type, or absurd: the error names it.

The keys are those that `read_config` reads from a valid file; each is then given wrong values.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import Struct
from msgspec.structs import replace

from sharpi.errors import ModelFileError, UnsupportedModelError
from sharpi.gguf.metadata import Metadata, MetadataValue
from sharpi.gguf.reader import GgufFile, open_gguf
from sharpi.model.config import read_config
from sharpi.model.weights import load_weights

REFERENCES = Path(__file__).parents[1] / "references" / "data"
MOST_LAYERS = 16  # of a file here: each is read hundreds of times
REQUIRED = {
    "block_count",
    "embedding_length",
    "context_length",
    "attention.head_count",
}
POSITIONS = ("context_length", "original_context")
NUMBERS = (-(1 << 62), -1, 0, 1, 7, 1 << 20, (1 << 31) - 1, 1 << 31, 1 << 63, -1e300, 1e-300, 1e300)
NOT_FINITE = (float("nan"), float("inf"), -float("inf"))
ARRAYS = tuple(np.array(values, np.int64) for values in ([], [-1] * 4, [1 << 40] * 64))


class WatchedMetadata(Metadata):
    """Records the keys that are read."""

    def __init__(self, path: Path, values: dict[str, MetadataValue]) -> None:
        super().__init__(path, values)
        self.asked: set[str] = set()

    def _find(self, key: str, default: Any) -> Any:
        self.asked.add(key)
        return super()._find(key, default)


@cache
def sound_files() -> dict[str, GgufFile]:
    """The smallest reference file of each architecture."""
    files = {}
    for path in sorted(REFERENCES.glob("*.gguf"), key=lambda path: -path.stat().st_size):
        file = open_gguf(path)
        architecture = file.metadata.get_str("general.architecture")
        if file.metadata.get_int(f"{architecture}.block_count") <= MOST_LAYERS:
            files[architecture] = file
    return files


ARCHITECTURES = sorted(sound_files())


def asked_keys(architecture: str) -> set[str]:
    file = sound_files()[architecture]
    watched = WatchedMetadata(file.path, dict(file.metadata))
    read_config(replace(file, metadata=watched))
    return {key for key in watched.asked if key.startswith(f"{architecture}.")}


def with_value(file: GgufFile, key: str, value: Any) -> GgufFile:
    """The file with this value of the key, or without the key for None."""
    values = {name: old for name, old in file.metadata.items() if name != key}
    if value is not None:
        values[key] = value
    return replace(file, metadata=Metadata(file.path, values))


def refusal(architecture: str, key: str, value: Any) -> str | None:
    """The error for a wrong value; None where the model loads all the same."""
    file = with_value(sound_files()[architecture], key, value)
    try:
        config = read_config(file)
        load_weights(file, config)
    except (ModelFileError, UnsupportedModelError) as error:
        return str(error)
    assert largest_number(config) < 1 << 31, f"{key}: more than the kernels' numbers hold"
    return None


def largest_number(value: Any) -> int:
    """The largest integer of a configuration and its parts, without the limit of positions."""
    if isinstance(value, Struct):
        names = (name for name in value.__struct_fields__ if name not in POSITIONS)
        return max([largest_number(getattr(value, name)) for name in names], default=0)
    if isinstance(value, tuple | list):
        return max(map(largest_number, value), default=0)
    return value if isinstance(value, int) else 0


def test_a_model_without_any_epsilon_is_refused() -> None:
    key = "qwen3moe.attention.layer_norm_rms_epsilon"
    assert str(refusal("qwen3moe", key, None)).endswith(f"the metadata has no {key}")


def names_a_cause(said: str, architecture: str) -> bool:
    return any(cause in said for cause in (f"{architecture}.", ": tensor ", ": layer "))


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_missing_key_is_named(architecture: str) -> None:
    for key in asked_keys(architecture):
        said, short = refusal(architecture, key, None), key.removeprefix(f"{architecture}.")
        if short in REQUIRED:
            assert said is not None, key
            assert said.endswith(f"the metadata has no {key}")
        else:
            assert said is None or names_a_cause(said, architecture), f"{key}: {said}"


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_value_of_a_wrong_type_is_named(architecture: str) -> None:
    for key in asked_keys(architecture):
        for value in ("twelve", ["a", "b"], np.array([1.5, 2.5]), *NOT_FINITE):
            said = refusal(architecture, key, value)
            assert said is not None, f"{key} = {value!r}"
            assert key in said


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_absurd_value_is_refused_or_harmless(architecture: str) -> None:
    """A value that nothing contradicts may pass; else the error names a key or a tensor.

    Most keys are read for several architectures, which try every other value in turn.
    """
    values = (*NUMBERS, *ARRAYS, True)[ARCHITECTURES.index(architecture) % 2 :: 2]
    for key in asked_keys(architecture):
        for value in values:
            said = refusal(architecture, key, value)
            assert said is None or names_a_cause(said, architecture), f"{key} = {value}: {said}"
