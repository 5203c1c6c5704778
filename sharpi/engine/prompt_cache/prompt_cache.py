"""PromptCache: KV pages and recurrent states on disk, found by the tokens of their text.

One background thread writes the pages of ended texts. Reads happen in the call that needs them.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sharpi.engine.backends.recorded_part import ModelMemory
from sharpi.engine.kv.pages import CachedPage
from sharpi.engine.prompt_cache.cache_folder import AnswerIds, CacheFolder
from sharpi.engine.prompt_cache.model_digest import ModelDigest, key_of
from sharpi.engine.prompt_cache.record import (
    HEADER_BYTES,
    ROOT,
    Bytes,
    Record,
    RecordName,
    link_after,
    page_links,
    write_record,
)
from sharpi.engine.prompt_cache.record_index import RecordIndex, RecordReader
from sharpi.engine.prompt_cache.save_queue import Pending, SaveQueue
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS
from sharpi.system.process import Closing

_SHORTEST = 8  # tokens that are worth a record of their own
_MAX_NOTES = 5


def link_before(page: CachedPage) -> bytes:
    """Returns the digest of all tokens before a page; stores it there, since they never change."""
    path = page.path()
    known = max((i for i, each in enumerate(path) if each.link is not None), default=0)
    for before, each in pairwise(path[known:]):
        each.link = link_after(before.link or ROOT, before.tokens)
    return page.link or ROOT


class ModelIdentity(Struct, frozen=True):
    """The identity of a model's pages: the digest of its files, and its arithmetic."""

    digest: ModelDigest
    arithmetic: str
    about: dict[str, Any]  # shown by `sharpi cache list`


class PromptCache(Closing):
    """The pages of one model on disk; all methods are for the engine's thread.

    `queue` has the pages that are to be written. Until the model's digest is known, no page is
    found, and pages to be saved wait. `close` returns
    when all pages are written; after that `notes` has sentences about what went wrong.
    """

    def __init__(self, folder: CacheFolder, memory: ModelMemory, identity: ModelIdentity) -> None:
        self._folder, self._memory, self._identity = folder, memory, identity
        self._sizes = memory.page_bytes, memory.state_bytes
        self.queue = SaveQueue(memory, self._is_stored)
        self._should_stop = threading.Event()
        self._key: bytes | None = None
        self._index: RecordIndex | None = None
        self._reader = RecordReader(self._path)
        self._ignored: list[str] = []
        self._failure: str | None = None
        self._can_write = folder.is_writable
        self.opening_notes = () if self._can_write else (_read_only(folder.path),)
        known = identity.digest.known()
        if known is not None:
            self._begin(known)
        self._thread = threading.Thread(target=self._write_all, name="prompt cache", daemon=True)
        if self._can_write:
            self._thread.start()

    @property
    def notes(self) -> tuple[str, ...]:
        more = len(self._ignored) - _MAX_NOTES
        counted = (f"the prompt cache: {more} more files were ignored",) if more > 0 else ()
        failed = () if self._failure is None else (self._failure,)
        return (*self._ignored[:_MAX_NOTES], *counted, *failed)

    def _begin(self, digest: bytes) -> None:
        """Opens the model's folder, whose key follows from the model's digest."""
        key = key_of(digest, self._identity.arithmetic)
        self._index = RecordIndex(self._folder.of_model(key))
        self._key = key

    @property
    def answers(self) -> AnswerIds | None:
        """The stored tokens of answers; None while the model's digest is not known."""
        return None if self._key is None else AnswerIds(self._folder.of_model(self._key))

    # What is on disk.

    def refresh(self) -> bool:
        """Updates the index with other processes' files; False while the digest is not known."""
        if self._key is None or self._index is None:
            return False
        self._index.refresh()
        return True

    def has_page(self, parent: bytes, own: bytes, *, is_partial: bool = False) -> bool:
        """Returns True if the page between two links is on disk, perhaps without windows."""
        name = RecordName(parent.hex(), own.hex(), PAGE_POSITIONS, False, is_partial)
        return self._index is not None and self._index.has(name)

    def longest(self, parent: bytes, tokens: Sequence[int], *, has_state: bool) -> int:
        """Returns how many of `tokens` the longest record after link `parent` has; 0 if none."""
        found = self._index.after(parent, tokens, has_state=has_state) if self._index else []
        return found[0].num_tokens if found else 0

    def read(self, wanted: Sequence[Record]) -> Iterator[tuple[Record, Bytes]]:
        """Yields records with page and state as they are read, until one cannot be used.

        The bytes are valid until the next record. Other threads read some records ahead. Records
        after an unusable one are only checked, so that damaged ones are written again.
        """
        is_whole = True
        for record, data, fault in self._reader.read(wanted):
            if fault is not None:
                self._ignore(record.name, fault)
                is_whole = False
            if is_whole:
                yield record, data

    def record(
        self,
        parent: bytes,
        position: int,
        tokens: Sequence[int],
        *,
        has_state: bool = False,
        is_partial: bool = False,
    ) -> Record:
        """Returns the header of a record for `tokens` from `position` on, after link `parent`."""
        assert self._key is not None
        page_bytes, state_bytes = self._sizes
        size = self._memory.partial_bytes if is_partial else page_bytes
        own = state_bytes if has_state else 0
        return Record(self._key, parent, position, tuple(tokens), size, own, is_partial)

    def _path(self, record: Record) -> Path:
        return self._folder.of_model(record.key) / str(record.name)

    def _ignore(self, name: RecordName, fault: str) -> None:
        if self._index is not None:
            self._index.remove(name)
        if fault and self._key is not None:
            path = self._folder.of_model(self._key) / str(name)
            self._ignored.append(f"the prompt cache ignored {path}: {fault}")

    def _is_stored(self, record: Record) -> bool:
        return self._index is not None and self._stored(record, self._index) is not None

    @staticmethod
    def _stored(record: Record, index: RecordIndex) -> RecordName | None:
        """Returns the name of a record on disk that has all bytes of `record`, or None."""
        names = record.name._replace(is_partial=False), record.name
        return next((name for name in names if index.has(name)), None)

    # What is to be written.

    def save(self, path: Sequence[CachedPage], has_windows: Callable[[int], bool]) -> None:
        """Queues the pages of an ended sequence; `has_windows` tells if page numbers are whole."""
        if self._can_write and self._failure is None:
            pages = [page for page in path if page.tokens]
            self.queue.add(list(self._pending(pages, has_windows, time.time_ns())))

    def _pending(
        self, path: Sequence[CachedPage], has_windows: Callable[[int], bool], time_ns: int
    ) -> Iterator[Pending]:
        """Yields a record for each page and state."""
        page_bytes, state_bytes = self._sizes
        tokens = [token for page in path for token in page.tokens]
        for number, (link, page) in enumerate(zip(page_links(tokens), path, strict=False)):
            position, time_of_page = number * PAGE_POSITIONS, time_ns - number * 1000
            own, is_partial = tuple(page.tokens), not has_windows(page.page)
            is_worth_it = len(own) >= _SHORTEST and not is_partial and not state_bytes
            if page.is_full or is_worth_it:
                size = self._memory.partial_bytes if is_partial else page_bytes
                record = Record(b"", link, position, own, size, is_partial=is_partial)
                yield Pending(record, page.page, None, time_of_page)
            for offset, state in page.states.items():
                after = Record(b"", link, position, own[:offset], page_bytes, state_bytes)
                yield Pending(after, page.page, state, time_of_page)

    def save_page(self, page: CachedPage) -> None:
        """Queues a whole page to be written, before its sliding-window layers are dropped."""
        if self._can_write and self._failure is None:
            position, own = page.index * PAGE_POSITIONS, tuple(page.tokens)
            record = Record(b"", link_before(page), position, own, self._sizes[0])
            self.queue.add([Pending(record, page.page, None, time.time_ns())])

    def _write_all(self) -> None:
        try:
            self._begin_writing()
            while (pending := self.queue.take()) is not None:
                self._write(pending)
            self._folder.trim(time.time_ns())  # the budget may be smaller than it was
        except (OSError, MemoryError) as error:
            reason = getattr(error, "strerror", None) or error
            self._failure = f"the prompt cache {self._folder.path} is not written: {reason}"
        finally:
            self._can_write = False
            self.queue.clear()

    def _begin_writing(self) -> None:
        if self._key is None:
            digest = self._identity.digest.compute(self._should_stop)
            if digest is None:
                self.queue.close()
                self.queue.clear()
                return
            self._begin(digest)
        assert self._key is not None
        self._folder.add_model(self._key, self._identity.about)
        self._folder.remove_abandoned()

    def _write(self, pending: Pending) -> None:
        """Writes a record, or updates the time of use of one that is already on disk."""
        assert self._key is not None
        assert self._index is not None
        record = replace(pending.record, key=self._key)
        time_ns = pending.time_ns
        if pending.data is None:
            name = self._stored(record, self._index) or record.name
            with suppress(OSError):  # another process removed it
                os.utime(self._folder.of_model(record.key) / str(name), ns=(time_ns, time_ns))
        elif self._folder.make_room(HEADER_BYTES + record.num_bytes, time_ns):
            write_record(self._path(record), record, pending.data, time_ns)
            self._index.add(record.name)
            for name in _replaced(record, self._index):
                self._index.remove(name)
                with suppress(OSError):
                    (self._folder.of_model(record.key) / str(name)).unlink()

    def close(self) -> None:
        """Waits until all records are written, once; an interrupt drops those that still wait."""
        self.queue.close()
        try:
            while self._thread.is_alive():
                self.queue.copy_some()
                self._thread.join(None if self._memory.is_host_memory else 0.01)
        except BaseException:
            self._should_stop.set()
            self.queue.clear()
            raise
        self._reader.close()


def _replaced(record: Record, index: RecordIndex) -> list[RecordName]:
    """Lists the records on disk that `record` makes superfluous."""
    if record.state_bytes or record.is_partial:
        return []
    partial = record.name._replace(is_partial=True)
    found = index.after(record.parent, record.tokens, has_state=False)
    shorter = [name for name in found if name.num_tokens < len(record.tokens)]
    return [*shorter, *([partial] if index.has(partial) else [])]


def _read_only(path: Path) -> str:
    return f"the prompt cache {path} cannot be written, so nothing is added to it"
