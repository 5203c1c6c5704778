"""The temperature of queries: what a file states, and what an architecture adds."""

from pathlib import Path

import pytest

from sharpi.errors import ModelFileError
from sharpi.gguf.metadata import Metadata
from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.model.mixers.temperature import Temperature, read_temperature
from sharpi.model.spec import load_spec

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
