"""Vocabularies in memory: the recorded ones, and small ones for a single rule."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sharpi.tokenizer.tokenizer import Tokenizer
from sharpi.tokenizer.vocabulary import Vocabulary

HERE = Path(__file__).parent
SPECIAL_IDS = {"unknown": 0, "bos": 1, "eos": 2}


@pytest.fixture(scope="session")
def vectors() -> dict[str, Any]:
    """llama.cpp's recorded ids, see make_vectors.py."""
    recorded: dict[str, Any] = json.loads((HERE / "vectors.json").read_text())
    return recorded


@pytest.fixture(scope="session")
def byte_level(vectors: dict[str, Any]) -> Vocabulary:
    """A vocabulary of 256 bytes, some hundred merges and a few special tokens."""
    return Vocabulary(
        "gpt2",
        pre_tokenizer="gpt-2",
        special_ids=SPECIAL_IDS,
        **vectors["vocabularies"]["byte_level"],
    )


@pytest.fixture(scope="session")
def by_words(vectors: dict[str, Any]) -> Vocabulary:
    """A SentencePiece vocabulary without tokens across words."""
    return Vocabulary("llama", special_ids=SPECIAL_IDS, **vectors["vocabularies"]["by_words"])


@pytest.fixture(scope="session")
def across(vectors: dict[str, Any]) -> Vocabulary:
    """A SentencePiece vocabulary with tokens across words."""
    return Vocabulary("llama", special_ids=SPECIAL_IDS, **vectors["vocabularies"]["across"])


@pytest.fixture(scope="session", params=["byte_level", "by_words", "across"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """Each of the recorded vocabularies."""
    return Tokenizer(request.getfixturevalue(request.param))


@pytest.fixture(scope="session")
def byte_tokenizer(byte_level: Vocabulary) -> Tokenizer:
    return Tokenizer(byte_level)


@pytest.fixture(scope="session")
def shared_vocabularies() -> Path:
    """Real vocabularies with llama.cpp's own vectors, if they are available."""
    root = os.environ.get("TESTS_SHARED")
    folder = (Path(root) if root else HERE.parents[2] / "shared") / "tokenizers"
    if not folder.is_dir():
        pytest.skip("no shared development data; set SHARPI_SHARED")
    return folder
