"""String arrays: decoded when asked, whole or one by one, whatever their bytes are."""

from pathlib import Path

import gguf_bytes as pack
import pytest

from sharpi.gguf.reader import open_gguf
from sharpi.gguf.string_array import StringArray

TOKENS = [b"a", b"", "Ġthe".encode(), b"\xe4\xbd", b"\xff", b"\0", b"x" * 300]


@pytest.fixture
def strings(tmp_path: Path) -> StringArray:
    path = tmp_path / "tokens.gguf"
    value = pack.array(pack.STRING, [pack.text(token) for token in TOKENS])
    path.write_bytes(pack.gguf([pack.pair("tokens", pack.ARRAY, value)]))
    found = open_gguf(path).metadata["tokens"]
    assert isinstance(found, StringArray)
    return found


def test_invalid_utf8_survives_a_round_trip(strings: StringArray) -> None:
    assert [t.encode("utf-8", "surrogateescape") for t in strings.tolist()] == TOKENS
    assert len(set(strings.tolist())) == len(TOKENS)


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
