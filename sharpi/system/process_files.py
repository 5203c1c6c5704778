"""Files by which this user's running processes find each other: one each, locked while it counts.

The system releases the lock when the process ends for any reason, so an unlocked file is stale.
"""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec
from msgspec import Struct

from sharpi.system.files import runtime_folder
from sharpi.system.process import Closing

T = TypeVar("T", bound=Struct)


class ProcessFile(Closing):
    """A locked file with facts about this process; `close` removes it. Raises OSError."""

    def __init__(self, name: str, facts: Struct) -> None:
        self._path = runtime_folder() / name
        self._path.unlink(missing_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(descriptor, "wb")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._file.write(msgspec.json.encode(facts))
        self._file.flush()

    def close(self) -> None:
        if not self._file.closed:
            with self._file:
                self._path.unlink(missing_ok=True)


def facts_of_processes(pattern: str, kind: type[T]) -> Iterator[T]:
    """Yields the facts in the files that match, and removes stale files; raises OSError."""
    for path in sorted(runtime_folder().glob(pattern)):
        facts = _read(path, kind)
        if facts is not None:
            yield facts


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        with path.open("rb") as file:
            if try_lock(file, fcntl.LOCK_SH):
                path.unlink(missing_ok=True)
                return None
            return msgspec.json.decode(file.read(), type=kind)
    # removed in the meantime, not written yet, or written by another version
    except (OSError, msgspec.DecodeError):
        return None


def try_lock(file: BinaryIO, kind: int = fcntl.LOCK_EX) -> bool:
    """Locks a file without waiting; returns False if another process has locked it."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
