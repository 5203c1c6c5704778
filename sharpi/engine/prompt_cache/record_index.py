"""RecordIndex: which records of one model are on disk, by the digest of the tokens before them."""

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from sharpi.engine.prompt_cache.record import RecordName, parse_name
from sharpi.engine.prompt_cache.token_chain import link_after


class RecordIndex:
    """The records of a folder at the last `refresh`, and those that were added since.

    Any thread may use it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._by_parent: dict[str, set[RecordName]] = {}
        self._names: set[str] = set()
        self._time_ns = -1
        self._lock = threading.Lock()

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
        """Adds a new record to the index."""
        with self._lock:
            self._names.add(str(name))
            self._insert(str(name))

    def remove(self, name: RecordName) -> None:
        """Removes from the index a record that cannot be used; its file is left alone."""
        with self._lock:
            self._drop(str(name))

    def has(self, name: RecordName) -> bool:
        """Returns True if the record is in the index."""
        return name in self._by_parent.get(name.parent, ())

    def after(self, parent: bytes, tokens: Sequence[int], *, has_state: bool) -> list[RecordName]:
        """Returns the records after link `parent` that `tokens` begin with, the longest first.

        A link is the digest of all tokens before a page. Partial records are left out.
        """
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
