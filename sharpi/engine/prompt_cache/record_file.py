"""Reads and writes the files of records; a file is written completely or not at all."""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sharpi.engine.prompt_cache.checksum import Bytes, checksum_of
from sharpi.engine.prompt_cache.record import HEADER_BYTES, Record, RecordFault, parse_header

TEMPORARY = ".sharpi-part-"  # how files begin that are being written


@contextmanager
def replacing(path: Path) -> Iterator[int]:
    """Yields the descriptor of a new file, which replaces `path` at the end.

    If the caller's block raises an exception, the new file is removed.
    """
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
    header = record.header(checksum_of(data))
    with replacing(path) as descriptor:
        write_all(descriptor, header)
        write_all(descriptor, data.data)
        os.utime(descriptor, ns=(time_ns, time_ns))


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Writes all of the data; raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def read_record(path: Path, expected: Record, data: Bytes) -> None:
    """Reads the page and the state of the expected record into `data`.

    Raises RecordFault for a file that does not have exactly this record, and OSError.
    """
    with opened(path) as (descriptor, size):
        record, checksum = parse_header(os.pread(descriptor, HEADER_BYTES, 0))
        if record.key != expected.key:
            raise RecordFault("it is of another model")
        if record != expected:
            raise RecordFault("it is of another text")
        if size != HEADER_BYTES + record.num_bytes:
            raise RecordFault("it is cut short, or too long")
        read_all(descriptor, data, HEADER_BYTES)
    if checksum_of(data) != checksum:
        raise RecordFault("it is damaged")


def read_all(descriptor: int, data: Bytes, at: int) -> None:
    """Fills `data` from offset `at` of a file; raises RecordFault at its end, and OSError."""
    rest = data.data
    while rest:
        count = os.preadv(descriptor, [rest], at)
        if not count:
            raise RecordFault("it was cut short while it was read")
        rest, at = rest[count:], at + count
