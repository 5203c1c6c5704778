"""The demo model that ships, read with the gguf package: its size, shape and vocabulary."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader, quants

FILE = Path(__file__).parents[2] / "models" / "demo" / "stories-moe.gguf"


@pytest.fixture(scope="module")
def reader() -> Any:
    """The open file."""
    return GGUFReader(FILE)


def value(reader: Any, key: str) -> Any:
    """The metadata value of `key`."""
    return reader.fields[key].contents()


def test_file_is_at_most_16_mib() -> None:
    assert FILE.stat().st_size <= 16 * 1024**2


def test_it_is_a_mixture_of_16_experts(reader: Any) -> None:
    assert value(reader, "general.architecture") == "qwen3moe"
    assert value(reader, "qwen3moe.expert_count") == 16
    assert value(reader, "qwen3moe.expert_used_count") == 2


def test_it_names_its_licence_and_data(reader: Any) -> None:
    assert value(reader, "general.license") == "cdla-sharing-1.0"
    assert value(reader, "general.dataset.0.name") == "TinyStories"


def test_it_continues_text_and_ends_stories_itself(reader: Any) -> None:
    assert "tokenizer.chat_template" not in reader.fields
    assert value(reader, "tokenizer.ggml.add_bos_token") is True
    end_id = value(reader, "tokenizer.ggml.eos_token_id")
    assert value(reader, "tokenizer.ggml.tokens")[end_id] == "<|endoftext|>"


def test_vocabulary_matches_the_embeddings(reader: Any) -> None:
    tokens = value(reader, "tokenizer.ggml.tokens")
    merges = value(reader, "tokenizer.ggml.merges")
    rows = {tensor.name: tensor.shape[-1] for tensor in reader.tensors}
    assert len(tokens) == rows["token_embd.weight"] == rows["output.weight"]
    assert {merge.replace(" ", "") for merge in merges} <= set(tokens)


@pytest.mark.slow
def test_every_value_is_finite_and_no_tensor_is_blank(reader: Any) -> None:
    for tensor in reader.tensors:
        values = quants.dequantize(tensor.data, tensor.tensor_type)
        assert np.isfinite(values).all(), tensor.name
        assert values.std() > 0, tensor.name
