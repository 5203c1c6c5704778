"""Ids of texts against llama.cpp's: recorded ones (make_vectors.py) and its own vectors."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from nasty_texts import SPECIAL_TEXTS, TEXTS

from sharpi.gguf.reader import open_gguf
from sharpi.tokenizer.tokenizer import Tokenizer, load_tokenizer
from sharpi.tokenizer.vocabulary import Vocabulary

PRE_TOKENIZERS = (
    "default", "gpt-2", "llama-bpe", "chatglm-bpe", "qwen2", "qwen35", "smollm", "deepseek-llm",
    "deepseek-coder", "deepseek-v3", "falcon", "tekken", "gpt-4o", "poro-chat", "viking",
    "minicpm5", "seed-coder", "exaone-moe", "bailingmoe", "laguna",
)  # fmt: skip


def assert_same_ids(tokenizer: Tokenizer, expected: dict[str, list[list[int]]]) -> None:
    for texts, key, parse_special in (
        (TEXTS, "texts", False),
        (SPECIAL_TEXTS, "special_parsed", True),
        (SPECIAL_TEXTS, "special_plain", False),
    ):
        for text, ids in zip(texts, expected[key], strict=True):
            found = tokenizer.encode(text, add_bos=False, parse_special=parse_special)
            assert found == ids, (key, text)


def test_every_recorded_pre_tokenizer_is_tried(vectors: dict[str, Any]) -> None:
    assert tuple(vectors["byte_level"]) == PRE_TOKENIZERS


@pytest.mark.slow
@pytest.mark.parametrize("pre_tokenizer", PRE_TOKENIZERS)
def test_byte_level(vectors: dict[str, Any], byte_level: Vocabulary, pre_tokenizer: str) -> None:
    tokenizer = Tokenizer(replace(byte_level, pre_tokenizer=pre_tokenizer))
    assert_same_ids(tokenizer, vectors["byte_level"][pre_tokenizer])
    assert tokenizer.notes == ()


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("name", ["by_words", "across"])
def test_sentence_piece(
    request: pytest.FixtureRequest, vectors: dict[str, Any], name: str, prefix: bool
) -> None:
    vocabulary = replace(request.getfixturevalue(name), add_space_prefix=prefix)
    key = f"{name} {'with' if prefix else 'without'} prefix"
    assert_same_ids(Tokenizer(vocabulary), vectors["sentence_piece"][key])


@pytest.mark.shared
@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "llama-spm", "qwen2", "deepseek-llm"])
def test_real_vocabularies(shared_vocabularies: Path, name: str) -> None:
    path = shared_vocabularies / f"ggml-vocab-{name}.gguf"
    with open_gguf(path) as file:
        tokenizer = load_tokenizer(file.metadata)
    with open(f"{path}.inp", encoding="utf-8", newline="") as file:
        texts = file.read().split("\n__ggml_vocab_test__\n")
    lines = Path(f"{path}.out").read_text().split("\n")
    for text, line in zip(texts, lines, strict=True):
        ids = [int(word) for word in line.split()]
        assert tokenizer.encode(text, add_bos=False, parse_special=False) == ids, text
        assert tokenizer.decode(ids) == text
