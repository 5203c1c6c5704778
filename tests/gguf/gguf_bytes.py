"""Packs GGUF files by hand, valid or not; the gguf package's writer makes only valid ones."""

import struct
from collections.abc import Sequence

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = dict(
    zip((U8, I8, U16, I16, U32, I32, F32, BOOL, U64, I64, F64), "BbHhIif?Qqd", strict=True)
)


def text(value: str | bytes) -> bytes:
    """A string as a file stores it: length, bytes."""
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def number(code: int, value: float) -> bytes:
    """A scalar of type `code`."""
    return struct.pack("<" + FORMATS[code], value)


def array(code: int, items: Sequence[bytes], count: int | None = None) -> bytes:
    """An array of packed items; a given `count` is written in place of their number."""
    return struct.pack("<IQ", code, len(items) if count is None else count) + b"".join(items)


def pair(key: str | bytes, code: int, value: bytes) -> bytes:
    """A metadata key with its packed value."""
    return text(key) + struct.pack("<I", code) + value


def uint32(key: str, value: int) -> bytes:
    """A pair that holds an unsigned number."""
    return pair(key, U32, number(U32, value))


def string(key: str, value: str | bytes) -> bytes:
    """A pair that holds a string."""
    return pair(key, STRING, text(value))


def info(name: str | bytes, sizes: Sequence[int], code: int = 0, offset: int = 0) -> bytes:
    """A tensor info; `sizes` fastest axis first, as in the file."""
    dims = struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
    return text(name) + dims + struct.pack("<IQ", code, offset)


def gguf(
    pairs: Sequence[bytes] = (),
    infos: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    alignment: int = 32,
    num_pairs: int | None = None,
    num_infos: int | None = None,
) -> bytes:
    """A whole file; `num_pairs` and `num_infos` are written in place of the true counts."""
    counts = (
        len(infos) if num_infos is None else num_infos,
        len(pairs) if num_pairs is None else num_pairs,
    )
    head = b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join(pairs) + b"".join(infos)
    return head + bytes(-len(head) % alignment) + data
