"""String arrays: decoded when asked, whole or one by one, whatever their bytes are."""

import random
from pathlib import Path

import gguf_bytes as pack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharpi.gguf.reader import open_gguf
from sharpi.gguf.string_array import StringArray, TextIndex, pack_strings

TOKENS = [b"a", b"", "Ġthe".encode(), b"\xe4\xbd", b"\xff", b"\0", b"x" * 300]
LISTS = {
    "with a zero byte": TOKENS,
    "without": [token for token in TOKENS if token != b"\0"],
    "ends in zero bytes": [b"a\0", b"\0", 8 * b"\0", b"b"],
    "empty ones": [b"", b"", b"a", b"", b""],
    "characters cut at the end": [b"\xf0\x9f", b"\x98", b"\xe2\x82", b"\xac", b"\xc3"],
    "one": [b"\xc3\xa9"],
}


def read(path: Path, tokens: list[bytes]) -> StringArray:
    value = pack.array(pack.STRING, [pack.text(token) for token in tokens])
    path.write_bytes(pack.gguf([pack.pair("tokens", pack.ARRAY, value)]))
    found = open_gguf(path).metadata["tokens"]
    assert isinstance(found, StringArray)
    return found


@pytest.fixture
def strings(tmp_path: Path) -> StringArray:
    return read(tmp_path / "tokens.gguf", TOKENS)


@pytest.mark.parametrize("tokens", LISTS.values(), ids=LISTS)
def test_any_bytes_survive_a_round_trip(tokens: list[bytes], tmp_path: Path) -> None:
    texts = read(tmp_path / "tokens.gguf", tokens).tolist()
    assert [text.encode("utf-8", "surrogateescape") for text in texts] == tokens
    assert texts == [token.decode("utf-8", "surrogateescape") for token in tokens]
    assert len(set(texts)) == len(set(tokens))


def test_random_bytes_survive_a_round_trip(tmp_path: Path) -> None:
    rng = random.Random(1)
    tokens = [rng.randbytes(rng.randrange(12)) for _ in range(2000)]
    for some in (tokens, [token.replace(b"\0", b"") for token in tokens]):
        texts = read(tmp_path / "tokens.gguf", some).tolist()
        assert [text.encode("utf-8", "surrogateescape") for text in texts] == some


def test_single_texts(strings: StringArray) -> None:
    assert len(strings) == len(TOKENS)
    assert strings[2] == "Ġthe"
    assert strings[-1] == "x" * 300
    assert list(strings) == strings.tolist()
    with pytest.raises(IndexError):
        strings[len(TOKENS)]


def test_an_empty_array(tmp_path: Path) -> None:
    path = tmp_path / "none.gguf"
    path.write_bytes(pack.gguf([pack.pair("none", pack.ARRAY, pack.array(pack.STRING, []))]))
    assert open_gguf(path).metadata.get_string_array("none").tolist() == []


def test_arrays_are_equal_by_their_strings(strings: StringArray, tmp_path: Path) -> None:
    assert strings == strings.copy()
    assert strings != read(tmp_path / "other.gguf", [*TOKENS[:-1], b"y" * 300])
    assert strings != read(tmp_path / "split.gguf", [*TOKENS[:-1], b"x" * 299, b"x"])
    assert strings != strings.tolist()


TEXTS = st.lists(st.text("abé\0Ġ", max_size=9), max_size=60)


def first_numbers(texts: list[str]) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for number, text in enumerate(texts):
        numbers.setdefault(text, number)
    return numbers


@given(TEXTS, TEXTS)
def test_texts_are_found_as_in_a_dictionary(texts: list[str], others: list[str]) -> None:
    index, expected = TextIndex(texts), first_numbers(texts)
    asked = [*texts, *others, "", "never there"]
    assert [index.get(text) for text in asked] == [expected.get(text) for text in asked]
    assert [text in index for text in asked] == [text in expected for text in asked]
    assert index.find_all(asked) == {text: expected[text] for text in asked if text in expected}
    assert index.todict() == dict(index) == expected
    assert len(index) == len(expected)
    assert index.longest == max((len(text.encode()) for text in texts), default=0)


def test_many_texts_with_equal_beginnings_and_ends() -> None:
    texts = [f"{i % 7}{'x' * (i % 40)}{i}" for i in range(20_000)]
    index = TextIndex(pack_strings(texts))
    assert all(index[text] == number for number, text in enumerate(texts))
    assert "x" not in index


def test_bytes_that_are_not_utf_8() -> None:
    index = TextIndex(["a", "\udcff", "\udc80b"])
    assert index["\udc80b"] == 2
    assert "\udc81b" not in index
    assert "\ud800" not in index  # stands for no byte
    assert 5 not in index
