"""Record: one page of the KV cache on disk, perhaps with a state of the recurrent layers after it.

A record's file has a header of 512 bytes, then the page's bytes, then the state's. The header has
the key of the model and its arithmetic and the page's tokens, and ends with a digest of itself. A
partial record only has the bytes of layers without windows, since the page's sliding-window layers
were dropped.
"""

import ctypes
import os
import re
import stat
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_size_t, c_uint64, c_void_p
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.native import declare, open_library
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS

Bytes = npt.NDArray[np.uint8]

DIGEST_BYTES = 16
ROW_BYTES = 64  # of eight lanes
_FIRST = np.arange(1, 9, dtype=np.uint64)


class Checksum:
    """A digest of data that is added in pieces; all but the last are whole rows of 64 bytes.

    The native library mixes the data into eight lanes of 64 bits, and BLAKE2 makes the digest of
    the lanes. It detects accidental changes, but is not secure against forged data.
    """

    def __init__(self) -> None:
        self._lanes = _FIRST.copy()
        self._num_bytes = 0

    def add(self, data: Bytes) -> None:
        """Adds contiguous bytes without the GIL; raises ValueError after an incomplete row."""
        if self._num_bytes % ROW_BYTES:
            raise ValueError("only the last piece may end within a row")
        lanes = self._lanes.ctypes.data_as(ctypes.POINTER(c_uint64))
        _library().sharpi_mix_lanes(data.ctypes.data, data.nbytes, lanes)
        self._num_bytes += data.nbytes

    def digest(self) -> bytes:
        length = self._num_bytes.to_bytes(8, "little")
        return blake2b(self._lanes.tobytes() + length, digest_size=DIGEST_BYTES).digest()


def checksum_of(data: Bytes) -> bytes:
    """Returns the digest of contiguous bytes."""
    checksum = Checksum()
    checksum.add(data)
    return checksum.digest()


@cache
def _library() -> ctypes.CDLL:
    signatures = {"sharpi_mix_lanes": (None, [c_void_p, c_size_t, ctypes.POINTER(c_uint64)])}
    return declare(open_library(), signatures)


LINK_BYTES = 16
ROOT = bytes(LINK_BYTES)  # before the first token


def link_after(parent: bytes, tokens: Sequence[int]) -> bytes:
    """Returns the link after `tokens`, a digest of them and of `parent`, the link before them."""
    ids = np.asarray(tokens, np.int32).tobytes()
    return blake2b(parent + ids, digest_size=LINK_BYTES).digest()


def page_links(tokens: Sequence[int]) -> list[bytes]:
    """Returns the link before each page of the tokens, and the one after the last whole page."""
    links = [ROOT]
    for start in range(0, len(tokens) - PAGE_POSITIONS + 1, PAGE_POSITIONS):
        links.append(link_after(links[-1], tokens[start : start + PAGE_POSITIONS]))
    return links


HEADER_BYTES = 512
KEY_BYTES = 16
_MAGIC = b"sharpiKV"
_VERSION = 2
# Magic, version, tokens, if partial, position, page bytes, state bytes, key, parent, checksum, ids.
_LAYOUT = struct.Struct(f"<8sIIIQQQ{KEY_BYTES}s{LINK_BYTES}s{DIGEST_BYTES}s{PAGE_POSITIONS}i")
_SIGNED_BYTES = HEADER_BYTES - DIGEST_BYTES
_NAME = re.compile(r"([0-9a-f]{32})-([0-9a-f]{32})-([0-9]{1,2})([sp]?)\.kv")


class RecordFault(Exception):
    """An error: a file is not a whole record of this model. The message names the fault."""


class RecordName(NamedTuple):
    """The name of a record's file: links before and after its tokens, their number, its kind."""

    parent: str  # in hexadecimal, as `own`
    own: str
    num_tokens: int
    has_state: bool
    is_partial: bool = False

    def __str__(self) -> str:
        kind = "s" if self.has_state else "p" if self.is_partial else ""
        return f"{self.parent}-{self.own}-{self.num_tokens}{kind}.kv"


def parse_name(name: str) -> RecordName | None:
    """Parses the name of a record's file; returns None for any other name."""
    match = _NAME.fullmatch(name)
    if match is None or not 1 <= int(match[3]) <= PAGE_POSITIONS:
        return None
    return RecordName(match[1], match[2], int(match[3]), match[4] == "s", match[4] == "p")


class Record(Struct, frozen=True):
    """The header of a record; `parent` is the digest of the text's tokens before `position`."""

    key: bytes  # of the model and its arithmetic
    parent: bytes
    position: int  # of the first token
    tokens: tuple[int, ...]
    page_bytes: int
    state_bytes: int = 0  # 0 without a state
    is_partial: bool = False  # without sliding-window layers

    @property
    def name(self) -> RecordName:
        own = link_after(self.parent, self.tokens).hex()
        has_state = self.state_bytes > 0
        return RecordName(self.parent.hex(), own, len(self.tokens), has_state, self.is_partial)

    @property
    def num_bytes(self) -> int:
        return self.page_bytes + self.state_bytes

    def header(self, checksum: bytes) -> bytes:
        """Returns the header of a file whose page and state have this checksum."""
        ids = [*self.tokens, *[0] * (PAGE_POSITIONS - len(self.tokens))]
        sizes = (self.position, self.page_bytes, self.state_bytes)
        fields = (len(self.tokens), self.is_partial, *sizes)
        head = _LAYOUT.pack(_MAGIC, _VERSION, *fields, self.key, self.parent, checksum, *ids)
        head = head.ljust(_SIGNED_BYTES, b"\0")
        return head + _digest(head)


def parse_header(header: bytes) -> tuple[Record, bytes]:
    """Returns a record and the checksum of its page and state; raises RecordFault."""
    head, digest = header[:_SIGNED_BYTES], header[_SIGNED_BYTES:]
    if len(header) != HEADER_BYTES:
        raise RecordFault("it is cut short")
    if not header.startswith(_MAGIC):
        raise RecordFault("it is no page of a prompt cache")
    if _digest(head) != digest:
        raise RecordFault("its header is damaged")
    values = _LAYOUT.unpack_from(head)
    _, version, count, is_partial, position, page_bytes, state_bytes, *rest = values
    key, parent, checksum, *ids = rest
    if version != _VERSION or not 1 <= count <= PAGE_POSITIONS:
        raise RecordFault("another version of sharpi wrote it")
    tokens = tuple(ids[:count])
    sizes = page_bytes, state_bytes
    return Record(key, parent, position, tokens, *sizes, bool(is_partial)), checksum


def _digest(head: bytes) -> bytes:
    return blake2b(head, digest_size=DIGEST_BYTES).digest()


TEMPORARY = ".sharpi-part-"  # how files begin that are being written


@contextmanager
def replacing(path: Path) -> Iterator[int]:
    """Yields the descriptor of a new file, which replaces `path` unless the block raises."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=TEMPORARY)
    try:
        with os.fdopen(descriptor, "wb", buffering=0):
            yield descriptor
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


@contextmanager
def opened(path: Path) -> Iterator[tuple[int, int]]:
    """Yields a file's descriptor and size; raises RecordFault unless it is regular, and OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise RecordFault("it is not a regular file")
        yield descriptor, status.st_size
    finally:
        os.close(descriptor)


def write_record(path: Path, record: Record, data: Bytes, time_ns: int) -> None:
    """Writes a record and its time of use atomically; leaves no file if it raises OSError."""
    with replacing(path) as descriptor:
        append_record(descriptor, record, data)
        os.utime(descriptor, ns=(time_ns, time_ns))


def append_record(descriptor: int, record: Record, data: Bytes) -> None:
    """Writes a record at the end of a file; raises OSError."""
    for rest in (memoryview(record.header(checksum_of(data))), data.data):
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def read_record(path: Path, expected: Record, data: Bytes) -> None:
    """Reads the expected record's page and state; raises RecordFault for others, and OSError."""
    with opened(path) as (descriptor, size):
        record, checksum = parse_header(os.pread(descriptor, HEADER_BYTES, 0))
        if record.key != expected.key:
            raise RecordFault("it is of another model")
        if record != expected:
            raise RecordFault("it is of another text")
        if size != HEADER_BYTES + record.num_bytes:
            raise RecordFault("it is cut short, or too long")
        read_data(descriptor, data, HEADER_BYTES, checksum)


def read_data(descriptor: int, data: Bytes, at: int, checksum: bytes) -> None:
    """Fills `data` from offset `at` of a file; raises RecordFault for damage, and OSError."""
    rest = data.data
    while rest:
        count = os.preadv(descriptor, [rest], at)
        if not count:
            raise RecordFault("it was cut short while it was read")
        rest, at = rest[count:], at + count
    if checksum_of(data) != checksum:
        raise RecordFault("it is damaged")
