"""The model of one text against that of the whole vocabulary: the same ids, whatever is missing."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from nasty_texts import TEXTS

from sharpi.gguf.reader import open_gguf
from sharpi.tokenizer import byte_pair as subject
from sharpi.tokenizer.tokenizer import Tokenizer, load_tokenizer
from sharpi.tokenizer.vocabulary import TokenKind, Vocabulary

LETTERS = "abcé"


def ids_of(vocabulary: Vocabulary, texts: list[str], max_characters: int) -> list[list[int]]:
    """Encodes each text with a new tokenizer, so that the limit of characters applies to each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subject, "MAX_CHARACTERS_APART", max_characters)
        tokenizer = Tokenizer(vocabulary)
        return [tokenizer.encode(text, add_bos=False, parse_special=False) for text in texts]


def assert_same(vocabulary: Vocabulary, texts: list[str]) -> None:
    assert ids_of(vocabulary, texts, 1 << 30) == ids_of(vocabulary, texts, 0)


def random_vocabulary(seed: int, pre_tokenizer: str) -> Vocabulary:
    """Some letters, unions of random pairs, merges with equal unions, unusable and equal merges."""
    rng = random.Random(seed)
    tokens = rng.sample(["a", "b", "c", "Ã", "©", "Ġ"], rng.randrange(3, 7))
    merges = []
    for _ in range(rng.randrange(60)):
        left, right = rng.choice(tokens), rng.choice(tokens)
        merges.append(f"{left} {right}")
        if rng.random() < 0.8:
            tokens.append(left + right)
    rng.shuffle(merges)
    return Vocabulary("gpt2", pre_tokenizer, tokens=tokens, kinds=[1] * len(tokens), merges=merges)


@pytest.mark.slow
@pytest.mark.parametrize("pre_tokenizer", ["gpt-2", "llama-bpe"])  # the second takes whole words
@settings(max_examples=60)
@given(st.integers(0, 1 << 30), st.lists(st.text(f"{LETTERS} ", max_size=30), max_size=8))
def test_random_vocabularies(pre_tokenizer: str, seed: int, texts: list[str]) -> None:
    assert_same(random_vocabulary(seed, pre_tokenizer), texts)


def test_what_stands_around_a_letter_without_token_is_merged() -> None:
    texts = ["abcb", "cacb", "acb", "b"]
    plain = Vocabulary(
        "gpt2", "gpt-2", tokens=["a", "b", "ab"], kinds=[1] * 3, merges=["a b", "a b", "b"]
    )
    assert ids_of(plain, texts, 1 << 30) == [[2, 1], [2], [2], [1]]
    assert_same(plain, texts)
    taking_words = replace(plain, pre_tokenizer="llama-bpe", tokens=["a", "b", "ab", "acb"])
    assert ids_of(replace(taking_words, kinds=[1] * 4), texts, 1 << 30)[2] == [3]


def test_a_union_longer_than_every_token_is_passed_over() -> None:
    tokens = ["aa", "bb", "a", "b"]
    vocabulary = Vocabulary("gpt2", "gpt-2", tokens=tokens, kinds=[1] * 4, merges=["aa bb", "a a"])
    assert ids_of(vocabulary, ["aabb"], 0) == [[0, 3, 3]]
    assert_same(vocabulary, ["aabb"])


@pytest.mark.parametrize("pre_tokenizer", ["default", "gpt-2", "llama-bpe", "deepseek-v3"])
def test_the_recorded_vocabulary(byte_level: Vocabulary, pre_tokenizer: str) -> None:
    assert_same(replace(byte_level, pre_tokenizer=pre_tokenizer), [*TEXTS])


def test_many_characters_are_encoded_by_the_whole_model(
    byte_level: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    made = subject.text_model
    monkeypatch.setattr(subject, "text_model", lambda *given: asked.append(given) or made(*given))
    tokenizer = Tokenizer(byte_level)
    for _ in range(100):
        tokenizer.encode_inside("x" * (subject.MAX_CHARACTERS_APART // 10))
    assert len(asked) == 10


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "qwen2", "deepseek-llm"])
def test_real_vocabularies(shared_vocabularies: Path, name: str) -> None:
    with open_gguf(shared_vocabularies / f"ggml-vocab-{name}.gguf") as file:
        assert_same(load_tokenizer(file.metadata).vocabulary, [*TEXTS, " ".join(TEXTS)])


MARK = "\u2581"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = ["a", "b", "ab", MARK, f"{MARK}a", f"{MARK}ab", "\n", "\n\n", f"b{MARK}"]
MERGES = ["a b", f"{MARK} a", f"{MARK} ab", "\n \n", f"b {MARK}"]
TOKENIZER = Tokenizer(
    Vocabulary(
        "gemma4",
        tokens=["<bos>", *BYTES, *PIECES],
        kinds=[TokenKind.CONTROL] + [TokenKind.BYTE] * 256 + [TokenKind.NORMAL] * len(PIECES),
        merges=MERGES,
        special_ids={"bos": 0},
        add_bos=True,
    )
)


def pieces(text: str) -> list[str]:
    ids = TOKENIZER.encode(text, add_bos=False, parse_special=False)
    return [TOKENIZER.token_text(token_id) for token_id in ids]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ab", ["ab"]),
        ("ab ab", ["ab", f"{MARK}ab"]),
        ("b a", ["b", f"{MARK}a"]),
        ("a\n\n\nb", ["a", "\n\n", "\n", "b"]),
        ("\u00e9", ["<0xC3>", "<0xA9>"]),
        ("  a", [MARK, f"{MARK}a"]),
    ],
)
def test_pieces(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


@pytest.mark.parametrize("text", ["ab ab\n a", "caf\u00e9 \U0001f600", " b "])
def test_texts_come_back(text: str) -> None:
    ids = TOKENIZER.encode(text, add_bos=False, parse_special=False)
    assert TOKENIZER.decode(ids) == text


def test_no_space_is_put_before_a_text_but_bos_is() -> None:
    assert TOKENIZER.add_bos
    assert not TOKENIZER.adds_space
