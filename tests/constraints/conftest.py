"""Small vocabularies of every kind, and the demo model's, each with an end token."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from forked_children import ForkedChildren

from sharpi.constraints import trial
from sharpi.gguf.reader import open_gguf
from sharpi.resources import demo_model
from sharpi.tokenizer.tokenizer import Tokenizer, load_tokenizer
from sharpi.tokenizer.vocabulary import TokenKind, Vocabulary

VECTORS = Path(__file__).parents[1] / "tokenizer" / "vectors.json"
CONTROLS = ["<bos>", "<end>", "<call>"]
PIECES = [
    "a",
    "b",
    "ab",
    "{",
    '"',
    '{"',
    '":',
    "\u2581",
    "\u2581a",
    "}",
    "\n",
    "\n\n",
    "\u2581\u2581",
]
TAIL = ["<think>", "</think>", "think", "</", ">", ">a", "<end>\u00e9"]
KINDS = ("byte_level", "by_words", "gemma", "demo")


def with_bytes(model: str) -> Tokenizer:
    """Returns control tokens, the 256 bytes and a few pieces; other text is spelled in bytes."""
    spelled = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = PIECES + TAIL
    return Tokenizer(
        Vocabulary(
            model,
            tokens=[*CONTROLS, *spelled, *pieces],
            kinds=[TokenKind.CONTROL] * 3
            + [TokenKind.BYTE] * 256
            + [TokenKind.NORMAL] * len(pieces),
            merges=["a b", '{ "', "\n \n", "\u2581 a"],
            special_ids={"bos": 0, "eos": 1},
        )
    )


def tokenizer_of(kind: str) -> Tokenizer:
    if kind == "demo":
        with open_gguf(demo_model()) as file:
            return load_tokenizer(file.metadata)
    if kind == "gemma":
        return with_bytes("gemma4")
    recorded = json.loads(VECTORS.read_text())["vocabularies"][kind]
    model = "gpt2" if kind == "byte_level" else "llama"
    ids = {"unknown": 0, "bos": 1, "eos": 2}
    return Tokenizer(Vocabulary(model, pre_tokenizer="gpt-2", special_ids=ids, **recorded))


@pytest.fixture(scope="session", params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """Byte-level BPE, SentencePiece, Gemma's marks, and the demo model's SentencePiece."""
    return tokenizer_of(request.param)


@pytest.fixture(scope="session")
def gemma() -> Tokenizer:
    return tokenizer_of("gemma")


@pytest.fixture(scope="session")
def demo() -> Tokenizer:
    return tokenizer_of("demo")


@pytest.fixture(scope="session")
def children() -> Iterator[ForkedChildren]:
    with closing(ForkedChildren()) as made:
        yield made


@pytest.fixture
def quick_children(children: ForkedChildren, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forks the children of grammars and schemas from a process that has loaded their modules."""
    monkeypatch.setattr(trial, "run_child", children.run)
