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


class PromptCache(Closing):
    """The pages of one model on disk, shown with `about`; for the engine's thread.

    `queue` has the pages that are to be written. Until the model's digest is known, no page is
    found, and pages to be saved wait. Once closed, `notes` has sentences about what went wrong.
    """

    def __init__(
        self,
        folder: CacheFolder,
        memory: ModelMemory,
        digest: ModelDigest,
        arithmetic: str,
        about: dict[str, Any],
    ) -> None:
        self._folder, self._memory = folder, memory
        self._digest, self._arithmetic, self._about = digest, arithmetic, about
        self._index = index = RecordIndex()
        self.queue = SaveQueue(memory, lambda record: index.stored(record) is not None)
        self._should_stop = threading.Event()
        self._reader = RecordReader(lambda record: index.path(record.name))
        self._ignored: list[str] = []
        self._failure: str | None = None
        self._can_write = folder.is_writable
        self.opening_notes = () if self._can_write else (_read_only(folder.path),)
        known = digest.known()
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
        key = key_of(digest, self._arithmetic)
        self._index.open(key, self._folder.of_model(key))

    @property
    def answers(self) -> AnswerIds | None:
        """The stored tokens of answers; None while the model's digest is not known."""
        key = self._index.key
        return AnswerIds(self._folder.of_model(key)) if key else None

    # What is on disk.

    def refresh(self) -> bool:
        """Updates the index with other processes' files; False while the digest is not known."""
        if self._index.key:
            self._index.refresh()
        return bool(self._index.key)

    def has_page(self, parent: bytes, own: bytes, *, is_partial: bool = False) -> bool:
        """Returns True if the page between two links is on disk, perhaps without windows."""
        name = RecordName(parent.hex(), own.hex(), PAGE_POSITIONS, False, is_partial)
        return self._index.has(name)

    def longest(self, parent: bytes, tokens: Sequence[int], *, has_state: bool) -> int:
        """Returns how many of `tokens` the longest record after link `parent` has; 0 if none."""
        found = self._index.after(parent, tokens, has_state=has_state)
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
        memory = self._memory
        size = memory.partial_bytes if is_partial else memory.page_bytes
        own = memory.state_bytes if has_state else 0
        return Record(self._index.key, parent, position, tuple(tokens), size, own, is_partial)

    def _ignore(self, name: RecordName, fault: str) -> None:
        self._index.remove(name)
        if fault:
            self._ignored.append(f"the prompt cache ignored {self._index.path(name)}: {fault}")

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
        tokens = [token for page in path for token in page.tokens]
        for number, (link, page) in enumerate(zip(page_links(tokens), path, strict=False)):
            position, time_of_page = number * PAGE_POSITIONS, time_ns - number * 1000
            own, is_partial = page.tokens, not has_windows(page.page)
            is_whole = not (is_partial or self._memory.state_bytes)
            if page.is_full or (is_whole and len(own) >= _SHORTEST):
                record = self.record(link, position, own, is_partial=is_partial)
                yield Pending(record, page.page, None, time_of_page)
            for offset, state in page.states.items():
                after = self.record(link, position, own[:offset], has_state=True)
                yield Pending(after, page.page, state, time_of_page)

    def save_page(self, page: CachedPage) -> None:
        """Queues a whole page to be written, before its sliding-window layers are dropped."""
        if self._can_write and self._failure is None:
            record = self.record(link_before(page), page.index * PAGE_POSITIONS, page.tokens)
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
        if not self._index.key:
            digest = self._digest.compute(self._should_stop)
            if digest is None:
                self.queue.close()
                self.queue.clear()
                return
            self._begin(digest)
        self._folder.add_model(self._index.key, self._about)
        self._folder.remove_abandoned()

    def _write(self, pending: Pending) -> None:
        """Writes a record, or updates the time of use of one that is already on disk."""
        index, time_ns = self._index, pending.time_ns
        record = replace(pending.record, key=index.key)
        if pending.data is None:
            name = index.stored(record) or record.name
            with suppress(OSError):  # another process removed it
                os.utime(index.path(name), ns=(time_ns, time_ns))
        elif self._folder.make_room(HEADER_BYTES + record.num_bytes, time_ns):
            write_record(index.path(record.name), record, pending.data, time_ns)
            index.add(record.name)
            for name in index.replaced_by(record):
                index.remove(name)
                with suppress(OSError):
                    index.path(name).unlink()

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


def _read_only(path: Path) -> str:
    return f"the prompt cache {path} cannot be written, so nothing is added to it"
