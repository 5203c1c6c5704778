"""Finds the records of one model on disk, by the digest of earlier tokens, and reads them."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from sharpi.engine.prompt_cache.record import (
    Bytes,
    Record,
    RecordFault,
    RecordName,
    link_after,
    parse_name,
    read_record,
)
from sharpi.ops.cpu.recorder_tape import aligned_bytes


class RecordIndex:
    """The records of a folder at the last `refresh`, and those added since; for any thread."""

    def __init__(self) -> None:
        self.key = b""  # of the model and its arithmetic; empty, as the index, until `open`
        self._folder = Path()
        self._by_parent: dict[str, set[RecordName]] = {}
        self._names: set[str] = set()
        self._time_ns = -1
        self._lock = threading.Lock()

    def open(self, key: bytes, folder: Path) -> None:
        """Makes this the index of a model's folder."""
        self._folder, self.key = folder, key

    def path(self, name: RecordName) -> Path:
        return self._folder / str(name)

    def refresh(self) -> None:
        """Updates the index from the folder, in which other processes add and remove files."""
        try:
            time_ns = os.stat(self._folder).st_mtime_ns
            names = set(os.listdir(self._folder)) if time_ns != self._time_ns else self._names
        except OSError:
            time_ns, names = -1, set[str]()
        with self._lock:
            self._time_ns = time_ns
            for name in self._names - names:
                self._drop(name)
            for name in names - self._names:
                self._insert(name)
            self._names = names

    def add(self, name: RecordName) -> None:
        with self._lock:
            self._names.add(str(name))
            self._insert(str(name))

    def remove(self, name: RecordName) -> None:
        """Removes from the index a record that cannot be used; its file is left alone."""
        with self._lock:
            self._drop(str(name))

    def has(self, name: RecordName) -> bool:
        return name in self._by_parent.get(name.parent, ())

    def stored(self, record: Record) -> RecordName | None:
        """Returns the name of a record on disk that has all bytes of `record`, or None."""
        names = record.name._replace(is_partial=False), record.name
        return next((name for name in names if self.has(name)), None)

    def replaced_by(self, record: Record) -> list[RecordName]:
        """Lists the shorter and partial records that `record` makes superfluous."""
        if record.state_bytes or record.is_partial:
            return []
        partial = record.name._replace(is_partial=True)
        found = self.after(record.parent, record.tokens, has_state=False)
        shorter = [name for name in found if name.num_tokens < len(record.tokens)]
        return [*shorter, *([partial] if self.has(partial) else [])]

    def after(self, parent: bytes, tokens: Sequence[int], *, has_state: bool) -> list[RecordName]:
        """Returns whole records after link `parent` that `tokens` begin with, the longest first."""
        with self._lock:
            following = list(self._by_parent.get(parent.hex(), ()))
        fitting = [
            name
            for name in following
            if name.has_state == has_state
            and not name.is_partial
            and name.num_tokens <= len(tokens)
            and name.own == link_after(parent, tokens[: name.num_tokens]).hex()
        ]
        return sorted(fitting, key=lambda name: -name.num_tokens)

    def _insert(self, name: str) -> None:
        record = parse_name(name)
        if record is not None:
            self._by_parent.setdefault(record.parent, set()).add(record)

    def _drop(self, name: str) -> None:
        record = parse_name(name)
        if record is not None:
            self._by_parent.get(record.parent, set()).discard(record)


_READS_AHEAD = 4
_READERS = 2


class RecordReader:
    """Reads the files of records, whose paths `path_of` returns, on its own threads."""

    def __init__(self, path_of: Callable[[Record], Path]) -> None:
        self._path_of = path_of
        self._pool = ThreadPoolExecutor(_READERS, thread_name_prefix="prompt cache")

    def read(self, wanted: Sequence[Record]) -> Iterator[tuple[Record, Bytes, str | None]]:
        """Yields records, bytes valid until the next, and faults: None if valid, "" if gone."""
        size = max((record.num_bytes for record in wanted), default=0)
        buffers = [aligned_bytes(size) for _ in range(min(_READS_AHEAD, len(wanted)))]
        ahead: list[Future[str | None]] = []
        for number, record in enumerate(wanted):
            while len(ahead) < len(wanted) and len(ahead) < number + len(buffers):
                buffer = buffers[len(ahead) % len(buffers)]
                ahead.append(self._pool.submit(self._fault_of, wanted[len(ahead)], buffer))
            fault = ahead[number].result()
            yield record, buffers[number % len(buffers)][: record.num_bytes], fault

    def _fault_of(self, record: Record, buffer: Bytes) -> str | None:
        try:
            read_record(self._path_of(record), record, buffer[: record.num_bytes])
        except FileNotFoundError:
            return ""
        except RecordFault as fault:
            return str(fault)
        except OSError as error:
            return error.strerror or str(error)
        return None

    def close(self) -> None:
        self._pool.shutdown()
