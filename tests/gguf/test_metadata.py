"""Typed access returns the right type, or raises an error that names the key."""

from collections.abc import Callable
from pathlib import Path

import gguf_bytes as pack
import numpy as np
import pytest

from sharpi.errors import ModelFileError
from sharpi.gguf.metadata import Metadata
from sharpi.gguf.reader import open_gguf

PAIRS = (
    pack.pair("i", pack.I32, pack.number(pack.I32, -7)),
    pack.pair("big", pack.U64, pack.number(pack.U64, 2**64 - 1)),
    pack.pair("f", pack.F32, pack.number(pack.F32, 0.5)),
    pack.pair("nan", pack.F64, pack.number(pack.F64, float("nan"))),
    pack.pair("b", pack.BOOL, b"\1"),
    pack.string("s", "text"),
    pack.string("escape", "\x1b[31mred\n"),
    pack.pair("texts", pack.ARRAY, pack.array(pack.STRING, [pack.text(t) for t in ("a", "", "ü")])),
    pack.pair(
        "ints", pack.ARRAY, pack.array(pack.I16, [pack.number(pack.I16, v) for v in (3, -4)])
    ),
    pack.pair("floats", pack.ARRAY, pack.array(pack.F32, [pack.number(pack.F32, 1.5)])),
    pack.pair("bools", pack.ARRAY, pack.array(pack.BOOL, [b"\1", b"\0"])),
    pack.pair("empty", pack.ARRAY, pack.array(pack.U8, [])),
    pack.pair(
        "nested", pack.ARRAY, pack.array(pack.ARRAY, [pack.array(pack.U8, [b"\7", b"\x08"])])
    ),
)


@pytest.fixture
def metadata(tmp_path: Path) -> Metadata:
    path = tmp_path / "keys.gguf"
    path.write_bytes(pack.gguf(PAIRS))
    return open_gguf(path).metadata


def test_values_of_every_kind(metadata: Metadata) -> None:
    assert metadata.get_int("i") == -7
    assert metadata.get_int("big") == 2**64 - 1
    assert metadata.get_float("f") == 0.5
    assert metadata.get_float("i") == -7.0
    assert metadata.get_bool("b") is True
    assert metadata.get_str("s") == "text"
    assert metadata.get_string_array("texts").tolist() == ["a", "", "ü"]
    assert metadata.get_ints("ints") == [3, -4]
    assert metadata.get_ints("i") == [-7]
    assert metadata.get_array("floats").tolist() == [1.5]
    assert metadata.get_array("bools").tolist() == [True, False]
    assert metadata.get_array("empty").size == 0
    assert [inner.tolist() for inner in metadata["nested"]] == [[7, 8]]


def test_keys_keep_the_order_of_the_file(metadata: Metadata) -> None:
    assert list(metadata)[:3] == ["i", "big", "f"]
    assert len(metadata) == len(PAIRS)
    assert "absent" not in metadata


def test_defaults_stand_in_for_missing_keys_only(metadata: Metadata) -> None:
    assert metadata.get_int("absent", 5) == 5
    assert metadata.get_int("absent", 0, minimum=1) == 0
    assert metadata.get_float("absent", 1.0) == 1.0
    assert metadata.get_bool("absent", False) is False
    assert metadata.get_str("absent", "") == ""
    assert metadata.get_array("absent", np.zeros(2)).size == 2
    assert metadata.find_printable("absent") is None
    with pytest.raises(ModelFileError, match="s must be a whole number, not 'text'"):
        metadata.get_int("s", 5)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda m: m.get_int("absent"), "the metadata has no absent"),
        (lambda m: m.get_int("b"), "b must be a whole number, not True"),
        (lambda m: m.get_int("f"), "f must be a whole number, not 0.5"),
        (lambda m: m.get_int("i", minimum=0), "i must be at least 0, not -7"),
        (
            lambda m: m.get_int("big", maximum=99),
            "big must be at most 99, not 18446744073709551615",
        ),
        (lambda m: m.get_float("nan"), "nan must be a finite number, not nan"),
        (lambda m: m.get_float("s"), "s must be a finite number"),
        (lambda m: m.get_bool("i"), "i must be true or false, not -7"),
        (lambda m: m.get_str("texts"), "texts must be a string, not an array of 3 entries"),
        (
            lambda m: m.get_string_array("ints"),
            "must be an array of strings, not an array of 2 numbers",
        ),
        (lambda m: m.get_array("texts"), "texts must be an array of numbers"),
        (lambda m: m.get_ints("floats"), "floats must be a whole number"),
        (lambda m: m.get_ints("empty"), "empty must be a whole number"),
    ],
)
def test_a_wrong_request_names_file_and_key(
    metadata: Metadata, read: Callable[[Metadata], object], message: str
) -> None:
    with pytest.raises(ModelFileError, match=r"keys\.gguf: ") as caught:
        read(metadata)
    assert message in str(caught.value)


def test_numbers_are_read_only_views(metadata: Metadata) -> None:
    assert not metadata.get_array("floats").flags.writeable
    assert not metadata.get_array("floats").flags.owndata


def test_control_characters_do_not_reach_a_terminal(metadata: Metadata) -> None:
    assert metadata.get_str("escape") == "\x1b[31mred\n"
    assert metadata.find_printable("escape") == "\ufffd[31mred\ufffd"
