"""Rotary tables: plain, linear, with divisors, YaRN, long contexts; and queries by temperature."""

import math
from pathlib import Path

import numpy as np
import pytest

from sharpi.errors import ModelFileError
from sharpi.gguf.metadata import Metadata
from sharpi.gguf.reader import open_gguf
from sharpi.model.config import read_config
from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.model.mixers.rope import RopeScaling, Temperature, read_temperature, rope_table
from sharpi.model.spec import load_spec
from sharpi.model.weights import load_weights


def test_plain_frequencies_are_powers_of_the_base() -> None:
    table = rope_table(8, 10000.0, RopeScaling())
    assert np.allclose(table.frequencies, [1, 0.1, 0.01, 0.001])
    assert table.scale == 1.0


def test_linear_scaling_slows_every_position() -> None:
    plain = rope_table(8, 10000.0, RopeScaling()).frequencies
    assert np.allclose(rope_table(8, 10000.0, RopeScaling("linear", 4.0)).frequencies, plain / 4)


def test_divisors_of_the_file_divide() -> None:
    divisors = np.array([1, 2, 4, 8], np.float32)
    plain = rope_table(8, 10000.0, RopeScaling()).frequencies
    assert np.allclose(
        rope_table(8, 10000.0, RopeScaling(), divisors).frequencies, plain / divisors
    )


def test_yarn_keeps_high_frequencies_and_interpolates_low_ones() -> None:
    scaling = RopeScaling("yarn", 8.0, original_context=4096)
    plain = rope_table(128, 10000.0, RopeScaling()).frequencies
    table = rope_table(128, 10000.0, scaling)
    rotations = 4096 * plain / (2 * math.pi)
    assert np.allclose(table.frequencies[rotations > 40], plain[rotations > 40])
    assert np.allclose(table.frequencies[rotations < 0.9], plain[rotations < 0.9] / 8)
    assert np.all(np.diff(table.frequencies) < 0)
    assert math.isclose(table.scale, 1 + 0.1 * math.log(8))


PHIMOE = Path(__file__).parents[2] / "references" / "data" / "phimoe.gguf"


@pytest.mark.parametrize(("context", "last"), [(64, 3.2), (4096, 3.2), (4097, 16.0)])
def test_divisors_follow_the_context(context: int, last: float) -> None:
    with open_gguf(PHIMOE) as file:
        weights = load_weights(file, read_config(file).for_context(context))
        assert weights.rope_divisors is not None
        assert np.isclose(weights.rope_divisors[-1], last)
        assert weights.unused == ()


RATE, LENGTH = "attention.temperature_scale", "attention.temperature_length"
CONTEXT = "rope.scaling.original_context_length"


def read(architecture: str, **keys: float) -> Temperature | None:
    stated = {name.replace("__", "."): value for name, value in keys.items()}
    values = {"block_count": 2, "embedding_length": 64, **stated}
    metadata = Metadata(Path("m.gguf"), {f"{architecture}.{k}": v for k, v in values.items()})
    return read_temperature(HyperparameterReader(metadata, architecture), load_spec(architecture))


@pytest.mark.parametrize(
    ("architecture", "keys", "expected"),
    [
        ("llama4", {}, Temperature(8192, 0.1, 1)),
        ("llama4", {RATE: 0.5, LENGTH: 16}, Temperature(16, 0.5, 1)),
        ("mistral3", {RATE: 0.25, CONTEXT: 4096}, Temperature(4096, 0.25, 0)),
        ("mistral3", {CONTEXT: 4096}, None),
        ("mistral4", {CONTEXT: 8192}, Temperature(8192, 0.1, 0)),
        ("mistral4", {RATE: 0.0, CONTEXT: 8192}, None),
        ("mistral4", {}, None),
        ("deepseek2", {RATE: 0.5, LENGTH: 16, CONTEXT: 4096}, Temperature(16, 0.5, 0)),
        ("deepseek2", {CONTEXT: 4096}, None),
        ("qwen3moe", {CONTEXT: 4096}, None),
    ],
)
def test_the_file_goes_before_the_architecture(
    architecture: str, keys: dict[str, float], expected: Temperature | None
) -> None:
    assert read(architecture, **keys) == expected


@pytest.mark.parametrize("keys", [{RATE: 0.5}, {RATE: 0.5, LENGTH: -1}])
def test_a_rate_without_steps_is_refused(keys: dict[str, float]) -> None:
    with pytest.raises(ModelFileError, match=r"mistral3\.attention\.temperature_length is"):
        read("mistral3", **keys)
