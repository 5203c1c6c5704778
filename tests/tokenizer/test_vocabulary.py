"""Metadata to Vocabulary: defaults, checks, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpi.errors import ModelFileError, UnsupportedModelError
from sharpi.gguf.metadata import Metadata
from sharpi.gguf.string_array import pack_strings
from sharpi.tokenizer.vocabulary import TokenKind, read_vocabulary

LLAMA = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "a"],
    "tokenizer.ggml.scores": np.array([0, 0, 0, -1], np.float32),
    "tokenizer.ggml.token_type": np.array([2, 3, 3, 1], np.int32),
}


def metadata(**changes: Any) -> Metadata:
    """Returns the llama file's metadata with other values; None removes a key, `__` is a dot."""
    values = LLAMA | {f"tokenizer.{key.replace('__', '.')}": v for key, v in changes.items()}
    read = {key: pack_strings(v) if isinstance(v, list) else v for key, v in values.items()}
    return Metadata(Path("m.gguf"), {key: v for key, v in read.items() if v is not None})


def test_ids_of_a_llama_file_that_names_none() -> None:
    vocabulary = read_vocabulary(metadata())
    assert [vocabulary.id_of(role) for role in ("unknown", "bos", "eos", "eot")] == [0, 1, 2, None]


def test_named_ids_and_ids_outside_the_vocabulary() -> None:
    vocabulary = read_vocabulary(
        metadata(ggml__bos_token_id=3, ggml__eos_token_id=99, ggml__eot_token_id=99)
    )
    assert [vocabulary.id_of(role) for role in ("bos", "eos", "eot")] == [3, 2, None]


def test_older_names_of_ids() -> None:
    assert read_vocabulary(metadata(ggml__prefix_token_id=3)).id_of("fim_pre") == 3


def test_missing_kinds_are_normal() -> None:
    vocabulary = read_vocabulary(metadata(ggml__token_type=None))
    assert vocabulary.kinds == [TokenKind.NORMAL] * 4


def test_empty_tokens_get_a_text() -> None:
    vocabulary = read_vocabulary(metadata(ggml__tokens=["<unk>", "", "</s>", ""]))
    assert vocabulary.tokens == ["<unk>", "[EMPTY_1]", "</s>", "[EMPTY_3]"]


def test_templates() -> None:
    vocabulary = read_vocabulary(metadata(chat_template="one", chat_template__tool_use="two"))
    assert vocabulary.chat_template == "one"
    assert vocabulary.other_templates == {"tool_use": "two"}


@pytest.mark.parametrize("key", ["scores", "token_type"])
def test_too_few_entries_are_refused(key: str) -> None:
    with pytest.raises(ModelFileError, match=f"{key} has 2 entries for 4 tokens"):
        read_vocabulary(metadata(**{f"ggml__{key}": np.zeros(2, np.int32)}))


@pytest.mark.parametrize("model", ["bert", "t5", "rwkv"])
def test_other_models_are_refused_by_name(model: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"'{model}'.*gpt2, llama"):
        read_vocabulary(metadata(ggml__model=model))


@pytest.mark.parametrize("model", ["no_vocab", "none", None])
def test_no_vocabulary(model: str | None) -> None:
    assert read_vocabulary(metadata(ggml__model=model)).model == "no_vocab"


def test_missing_merges_are_named() -> None:
    with pytest.raises(ModelFileError, match=r"tokenizer\.ggml\.merges"):
        read_vocabulary(metadata(ggml__model="gpt2"))
