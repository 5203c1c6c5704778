"""The file of a server's slot: the KV pages of one text, which a client saved by name.

It has one record after another, each with its header.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from sharpi.engine.prompt_cache.checksum import Bytes, checksum_of
from sharpi.engine.prompt_cache.record import HEADER_BYTES, Record, RecordFault, parse_header
from sharpi.engine.prompt_cache.record_file import opened, read_all, replacing, write_all
from sharpi.engine.prompt_cache.token_chain import ROOT, link_after
from sharpi.ops.cpu.buffers import aligned_bytes
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS


class PageSizes(NamedTuple):
    """The bytes of a page, of a state, and of a page without sliding-window layers.

    The last number is 0 if these layers keep all pages.
    """

    page_bytes: int
    state_bytes: int
    partial_bytes: int


def write_slot(path: Path, records: Iterable[tuple[Record, Bytes]]) -> int:
    """Writes the records to a file atomically; returns the number of bytes.

    If it raises OSError, an older file stays as it was.
    """
    num_bytes = 0
    with replacing(path) as descriptor:
        for record, data in records:
            write_all(descriptor, record.header(checksum_of(data)))
            write_all(descriptor, data.data)
            num_bytes += HEADER_BYTES + record.num_bytes
    return num_bytes


def read_slot(path: Path, key: bytes, sizes: PageSizes) -> Iterator[tuple[Record, Bytes]]:
    """Yields the records of a file in order; the bytes are valid until the next one.

    Raises OSError, and RecordFault at the first record that is damaged, belongs to another model,
    or does not follow the record before it.
    """
    data = aligned_bytes(sizes.page_bytes + sizes.state_bytes)
    at, parent, position = 0, ROOT, 0
    with opened(path) as (descriptor, size):
        while at < size:
            record, checksum = parse_header(os.pread(descriptor, HEADER_BYTES, at))
            _check(record, key, parent, position, sizes)
            own = data[: record.num_bytes]
            read_all(descriptor, own, at + HEADER_BYTES)
            if checksum_of(own) != checksum:
                raise RecordFault("it is damaged")
            yield record, own
            at += HEADER_BYTES + record.num_bytes
            parent = link_after(parent, record.tokens)
            position += len(record.tokens)


def _check(record: Record, key: bytes, parent: bytes, position: int, sizes: PageSizes) -> None:
    if record.key != key:
        raise RecordFault("it is of another model, or of another version of sharpi")
    if record.is_partial and not sizes.partial_bytes:
        raise RecordFault(
            "it lacks keys and values outside of windows, which this context keeps; load the"
            " model with the -c that it had when the file was saved"
        )
    page_bytes = sizes.partial_bytes if record.is_partial else sizes.page_bytes
    expected = record.page_bytes == page_bytes and record.state_bytes in (0, sizes.state_bytes)
    follows = record.parent == parent and record.position == position
    if not follows or not expected or position % PAGE_POSITIONS:
        raise RecordFault("its pages do not follow each other")
