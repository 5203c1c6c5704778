"""Faulty files: one printable line that names the file and the fault."""

import mmap
import os
import struct
from pathlib import Path

import gguf_bytes as pack
import pytest

from sharpi.errors import ModelFileError
from sharpi.gguf.quant_types import QuantType
from sharpi.gguf.reader import open_gguf

HUGE = 1 << 62
SOUND = pack.gguf([pack.string("s", "x")], [pack.info("w", [32, 2])], bytes(256))


def values(code: int, payload: bytes) -> bytes:
    """A file with one key of type `code`."""
    return pack.gguf([pack.pair("key", code, payload)])


def arrays(code: int, count: int, payload: bytes = b"") -> bytes:
    """A file with one array that claims `count` entries."""
    return values(pack.ARRAY, pack.array(code, [payload], count))


def alignment(value: int) -> bytes:
    return pack.gguf([pack.uint32("general.alignment", value)])


def tensors(*infos: bytes, size: int = 1024) -> bytes:
    return pack.gguf(infos=infos, data=bytes(size))


NESTED = b"".join(struct.pack("<IQ", pack.ARRAY, 1) for _ in range(60))

FAULTS = {
    "empty": (b"", "the file is empty"),
    "short magic": (b"GG", "it does not begin with GGUF"),
    "wrong magic": (b"ABCD" + SOUND[4:], "it does not begin with GGUF"),
    "zeros": (bytes(4096), "begins with zeros"),
    "safetensors": (struct.pack("<Q", 40) + b'{"__metadata__":{}}', "safetensors"),
    "zip": (b"PK\3\4" + bytes(40), "a zip archive"),
    "gzip": (b"\x1f\x8b\x08" + bytes(40), "a gzip archive"),
    "web page": (b"\n<!DOCTYPE html><html>", "a web page"),
    "xml": (b"<?xml version='1.0'?><Error>", "a server's XML response"),
    "git-lfs": (b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
    "json": (b'{"architectures": []}', "JSON"),
    "ggml": (b"lmgg" + bytes(40), "an old GGML file"),
    "big-endian magic": (b"FUGG" + SOUND[4:], "big-endian"),
    "big-endian version": (b"GGUF\0\0\0\3" + SOUND[8:], "big-endian"),
    "version 1": (b"GGUF\1\0\0\0" + SOUND[8:], "GGUF version 1 is not supported"),
    "version 0": (b"GGUF\0\0\0\0" + SOUND[8:], "GGUF version 0 is not supported"),
    "version 4": (b"GGUF\4\0\0\0" + SOUND[8:], "GGUF version 4 is not supported; sharpi reads"),
    "only magic": (b"GGUF", "truncated or corrupt: the version"),
    "no counts": (SOUND[:10], "the number of tensors would end at byte 16"),
    "no tensors": (SOUND[:24], "1 tensors do not fit"),
    "no keys": (pack.gguf(alignment=1, num_pairs=1), "1 metadata keys do not fit"),
    "many tensors": (pack.gguf(num_infos=HUGE), f"{HUGE} tensors do not fit"),
    "many keys": (pack.gguf(num_pairs=HUGE), f"{HUGE} metadata keys do not fit"),
    "unbelievable keys": (pack.gguf(data=bytes(2**20), num_pairs=70000), "more than the 65536"),
    "same key": (pack.gguf([pack.uint32("k", 1)] * 2), "key k appears twice"),
    "empty key": (pack.gguf([pack.uint32("", 1)]), "a metadata key has 0 bytes"),
    "long key": (pack.gguf([pack.uint32("k" * 65536, 1)]), "a metadata key has 65536 bytes"),
    "key not UTF-8": (pack.gguf([pack.string(b"\xff", "")]), "not printable UTF-8"),
    "key with a line end": (pack.gguf([pack.string("a\nb", "")]), "not printable UTF-8"),
    "unknown value type": (values(13, bytes(64)), "key has the unknown value type 13"),
    "unknown entry type": (arrays(99, 1, bytes(64)), "key has the unknown value type 99"),
    "boolean of 2": (values(pack.BOOL, b"\2"), "neither 0 nor 1"),
    "array with a boolean of 2": (arrays(pack.BOOL, 2, b"\1\2"), "neither 0 nor 1"),
    "long text": (values(pack.STRING, struct.pack("<Q", HUGE)), "key would end at byte"),
    "text of 2^64-1": (values(pack.STRING, b"\xff" * 8), "key would end at byte"),
    "long array": (arrays(pack.F64, HUGE), "key would end at byte"),
    "array of 2^64-1": (arrays(pack.U8, 2**64 - 1), "key would end at byte"),
    "many texts": (arrays(pack.STRING, HUGE), "entries of key do not fit"),
    "texts past the end": (
        arrays(pack.STRING, 3, pack.text("ab") + b"\xff" * 16),
        "a string of key would end at byte",
    ),
    "last text past the end": (
        arrays(pack.STRING, 1, struct.pack("<Q", 99) + b"ab"),
        "a string of key would end at byte",
    ),
    "deep arrays": (values(pack.ARRAY, NESTED), "key nests too many arrays"),
    "wide arrays": (
        arrays(pack.ARRAY, 50000, struct.pack("<IQ", pack.ARRAY, 50000) + bytes(700000)),
        "key nests too many arrays",
    ),
    "alignment 0": (alignment(0), "general.alignment is 0"),
    "alignment 48": (alignment(48), "general.alignment is 48"),
    "alignment 2^31": (alignment(1 << 31), "not a power of two up to"),
    "alignment as text": (
        pack.gguf([pack.string("general.alignment", "32")]),
        "general.alignment must be a whole number",
    ),
    "tensor without a name": (tensors(pack.info("", [4])), "a tensor's name has 0 bytes"),
    "five dimensions": (tensors(pack.info("w", [1] * 5)), "tensor w has 5 dimensions"),
    "2^32-1 dimensions": (
        tensors(pack.text("w") + b"\xff" * 64),
        "tensor w has 4294967295 dimensions",
    ),
    "no columns": (tensors(pack.info("w", [0, 4])), "impossible shape (4, 0)"),
    "overflowing shape": (tensors(pack.info("w", [1 << 32] * 3)), "impossible shape"),
    "unknown type": (tensors(pack.info("w", [4], 77)), "tensor w has the unknown type 77"),
    "withdrawn type": (tensors(pack.info("w", [4], 31)), "Q4_0_4_4, a withdrawn type"),
    "type of ik_llama.cpp": (
        tensors(pack.info("w", [4], 144)),
        "tensor w is IQ4_KS, a type of ik_llama.cpp alone (id 144)",
    ),
    "half a block": (
        tensors(pack.info("w", [48], QuantType.Q8_0)),
        "tensor w: 48 columns are not a multiple of 32, the block size of Q8_0",
    ),
    "not aligned": (tensors(pack.info("w", [4], 0, 16)), "tensor w is not aligned to 32 bytes"),
    "beyond the end": (tensors(pack.info("w", [257])), "tensor w would end at byte"),
    "far beyond the end": (
        tensors(pack.info("w", [4], 0, 2**64 - 32)),
        "tensor w would end at byte",
    ),
    "same tensor": (
        tensors(pack.info("w", [4]), pack.info("w", [4], 0, 32)),
        "tensor w appears twice",
    ),
    "overlap": (
        tensors(pack.info("b", [4], 0, 32), pack.info("a", [16], 0, 0)),
        "tensors a and b overlap",
    ),
    "same place": (tensors(pack.info("a", [4]), pack.info("b", [4])), "overlap"),
}


def fault_of(path: Path) -> str:
    """Returns the error of opening a file, which must be one printable line with the path first."""
    with pytest.raises(ModelFileError) as caught:
        open_gguf(path)
    message = str(caught.value)
    assert message.isprintable()
    assert message.startswith(f"{path}: ")
    return message


@pytest.mark.parametrize(("data", "fault"), FAULTS.values(), ids=list(FAULTS))
def test_a_faulty_file(tmp_path: Path, data: bytes, fault: str) -> None:
    path = tmp_path / "faulty.gguf"
    path.write_bytes(data)
    assert fault in fault_of(path)


def test_every_truncation_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "short.gguf"
    for size in range(1, len(SOUND)):
        path.write_bytes(SOUND[:size])
        fault_of(path)


def test_no_such_file(tmp_path: Path) -> None:
    assert fault_of(tmp_path / "absent.gguf").endswith("no such file")
    assert fault_of(tmp_path / "absent-00001-of-00002.gguf").endswith("no such file")


def test_a_folder(tmp_path: Path) -> None:
    assert "this is a folder" in fault_of(tmp_path)


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    assert "not a regular file" in fault_of(tmp_path / "pipe.gguf")


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    assert "cannot be read" in fault_of(tmp_path / ("x" * 5000))


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "private.gguf"
    path.write_bytes(SOUND)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(mmap, "mmap", refuse)
    assert fault_of(path).endswith("cannot be read (Permission denied)")
