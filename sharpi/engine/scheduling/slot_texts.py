"""SlotTexts: the last text of each slot of the server, which clients save to a file and restore.

As in llama.cpp, each running request has a slot. All slots share the prefix cache, so that a
restored text is found by any request that begins with it.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec.structs import replace

from sharpi.engine.backends.recorded_part import ModelMemory
from sharpi.engine.kv.pages import CachedPage
from sharpi.engine.prompt_cache.record import (
    HEADER_BYTES,
    ROOT,
    Bytes,
    Record,
    RecordFault,
    append_record,
    link_after,
    opened,
    page_links,
    parse_header,
    read_data,
    replacing,
)
from sharpi.engine.runner import Runner
from sharpi.engine.scheduling.prefix_cache import PrefixCache
from sharpi.engine.scheduling.restoration import place
from sharpi.errors import ContextFullError
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS
from sharpi.ops.cpu.recorder_tape import aligned_bytes


def write_slot(path: Path, records: Iterable[tuple[Record, Bytes]]) -> int:
    """Writes records atomically; returns the bytes, or raises OSError with the file as before."""
    num_bytes = 0
    with replacing(path) as descriptor:
        for record, data in records:
            append_record(descriptor, record, data)
            num_bytes += HEADER_BYTES + record.num_bytes
    return num_bytes


def read_slot(path: Path, key: bytes, memory: ModelMemory) -> Iterator[tuple[Record, Bytes]]:
    """Yields records, valid until the next; raises RecordFault at one unfit, and OSError."""
    data = aligned_bytes(memory.page_bytes + memory.state_bytes)
    at, parent, position = 0, ROOT, 0
    with opened(path) as (descriptor, size):
        while at < size:
            record, checksum = parse_header(os.pread(descriptor, HEADER_BYTES, at))
            _check(record, key, parent, position, memory)
            own = data[: record.num_bytes]
            read_data(descriptor, own, at + HEADER_BYTES, checksum)
            yield record, own
            at += HEADER_BYTES + record.num_bytes
            parent = link_after(parent, record.tokens)
            position += len(record.tokens)


def _check(record: Record, key: bytes, parent: bytes, position: int, memory: ModelMemory) -> None:
    if record.key != key:
        raise RecordFault("it is of another model, or of another version of sharpi")
    if record.is_partial and not memory.partial_bytes:
        raise RecordFault(
            "it lacks keys and values outside of windows, which this context keeps; load the"
            " model with the -c that it had when the file was saved"
        )
    page_bytes = memory.partial_bytes if record.is_partial else memory.page_bytes
    expected = record.page_bytes == page_bytes and record.state_bytes in (0, memory.state_bytes)
    follows = record.parent == parent and record.position == position
    if not follows or not expected or position % PAGE_POSITIONS:
        raise RecordFault("its pages do not follow each other")


class SlotTexts:
    """Saves and restores the texts of the server's slots; `texts` has the tokens of each slot."""

    def __init__(self, cache: PrefixCache, runner: Runner, texts: list[list[int]]) -> None:
        self._cache, self._memory, self.texts = cache, runner.memory, texts

    def save(self, number: int, path: Path, key: bytes) -> tuple[int, int]:
        """Writes a slot's text in memory; returns its tokens and bytes, or raises OSError."""
        tokens = self.texts[number]
        prefix = self._cache.find(tokens)
        if self._cache.states.are_needed:
            prefix = self._cache.cut_to_state(prefix, tokens)
        prefix = self._cache.cut_to_windows(prefix)
        num_bytes = write_slot(path, self._records(tokens[: prefix.length], key))
        return prefix.length, num_bytes

    def _records(self, tokens: list[int], key: bytes) -> Iterator[tuple[Record, Bytes]]:
        memory, links = self._memory, page_links(tokens)
        data = aligned_bytes(memory.page_bytes + memory.state_bytes)
        node = self._cache.root
        for number, start in enumerate(range(0, len(tokens), PAGE_POSITIONS)):
            own = tuple(tokens[start : start + PAGE_POSITIONS])
            is_last = start + len(own) == len(tokens)
            page = _page_after(node, own, needs_state=is_last and self._cache.states.are_needed)
            state = page.states.get(len(own)) if is_last else None
            size = 0 if state is None else memory.state_bytes
            record = self._record(Record(key, links[number], start, own, 0, size), page)
            own_page = data[: record.page_bytes]
            memory.read_page(page.page, own_page, is_partial=record.is_partial)
            if state is not None:
                memory.read_state(state, data[record.page_bytes : record.num_bytes])
            yield record, data[: record.num_bytes]
            node = page

    def _record(self, record: Record, page: CachedPage) -> Record:
        """Completes a page's record; it is partial if sliding-window layers have dropped it."""
        if self._cache.windows.has(page.page):
            return replace(record, page_bytes=self._memory.page_bytes)
        return replace(record, page_bytes=self._memory.partial_bytes, is_partial=True)

    def restore(self, number: int, path: Path, key: bytes) -> tuple[int, int]:
        """Reads a slot's text; returns tokens and bytes, or raises RecordFault and others."""
        tokens, num_bytes = list[int](), 0
        held: list[CachedPage] = []
        try:
            for record, data in read_slot(path, key, self._memory):
                page = place(self._cache, held[-1] if held else self._cache.root, record, data)
                if page is None:
                    raise ContextFullError("the KV cache has no room for this text; raise -c")
                held.append(page)
                self._cache.windows.trim()
                tokens += record.tokens
                num_bytes += record.num_bytes
        finally:
            for page in reversed(held):
                self._cache.release(page)
        self.texts[number] = tokens
        return len(tokens), num_bytes

    def erase(self, number: int) -> int:
        """Forgets a slot's text and frees the pages that only it uses; returns its token count."""
        tokens, self.texts[number] = self.texts[number], []
        self._cache.remove_text(tokens)
        return len(tokens)


def _page_after(parent: CachedPage, tokens: tuple[int, ...], *, needs_state: bool) -> CachedPage:
    """Returns the child that begins with these tokens."""
    return next(
        page
        for page in parent.children
        if tuple(page.tokens[: len(tokens)]) == tokens
        and (not needs_state or len(tokens) in page.states)
    )
