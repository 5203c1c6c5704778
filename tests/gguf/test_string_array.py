"""String arrays: decoded when asked, whole or one by one, whatever their bytes are."""

import random
from pathlib import Path

import gguf_bytes as pack
import pytest

from sharpi.gguf.reader import open_gguf
from sharpi.gguf.string_array import StringArray

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
    assert open_gguf(path).metadata.get_strings("none") == []


def test_arrays_are_equal_by_their_strings(strings: StringArray, tmp_path: Path) -> None:
    assert strings == strings.copy()
    assert strings != read(tmp_path / "other.gguf", [*TOKENS[:-1], b"y" * 300])
    assert strings != read(tmp_path / "split.gguf", [*TOKENS[:-1], b"x" * 299, b"x"])
    assert strings != strings.tolist()
