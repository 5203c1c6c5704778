"""Blobs: the contents of one repository's files in the cache, complete or partly downloaded."""

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from filelock import Timeout
from huggingface_hub.utils import WeakFileLock

from sharpi.errors import HubError
from sharpi.hub.cache import Cache
from sharpi.hub.catalogue import ModelName
from sharpi.hub.repository import RemoteFile
from sharpi.system.process import Closing
from sharpi.units import format_bytes

_PIECE = 1 << 22  # bytes hashed at once
_SHA256_DIGITS = 64


class PartialFile(Closing):
    """A file of `size` bytes that is downloaded piece by piece; reopening it keeps its bytes."""

    def __init__(self, path: Path, size: int, checksum: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.size, self.received = path, size, 0
        self._checksum = checksum
        self._hash = self._new_hash()
        self._file = path.open("ab+")
        self._hash_what_is_there()

    @property
    def is_complete(self) -> bool:
        """True if all bytes were received."""
        return self.received >= self.size

    @property
    def is_verified(self) -> bool:
        """True if all bytes were received and their checksum is right."""
        return self.received == self.size and self._hash.hexdigest() == self._checksum

    def append(self, data: bytes) -> None:
        """Appends downloaded bytes; raises OSError if the disk is full."""
        self._file.write(data)
        self._hash.update(data)
        self.received += len(data)

    def restart(self) -> None:
        """Discards all received bytes."""
        self._file.truncate(0)
        self._hash, self.received = self._new_hash(), 0

    def _hash_what_is_there(self) -> None:
        self._file.seek(0)
        while data := self._file.read(_PIECE):
            self._hash.update(data)
            self.received += len(data)
        if self.received > self.size:
            self.restart()

    def _new_hash(self) -> "hashlib._Hash":
        if len(self._checksum) == _SHA256_DIGITS:
            return hashlib.sha256()
        return hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False)  # git's id of a blob

    def close(self) -> None:
        """Closes the file; the bytes on disk stay."""
        self._file.close()


class Watcher(Protocol):
    """Receives the progress of downloads: of each file the beginning, bytes, and the end."""

    def note(self, text: str) -> None:
        """Reports a choice or a problem, at any time."""

    def begin(self, path: str, size: int, received: int) -> None:
        """Reports a file of `size` bytes, of which `received` are already on disk."""

    def advance(self, count: int) -> None:
        """Reports `count` more bytes; negative if the server began the file again."""

    def end(self) -> None:
        """Reports that the file is complete and its checksum right."""


_LONG_TO_CHECK = 2 << 30  # bytes whose check takes about two seconds
_LOCK_TIMEOUT_SECONDS = 0.1  # before the user is told that another program holds the lock


class Blobs:
    """Manages the folders `blobs` and `partial` of one repository in the Hugging Face cache."""

    def __init__(self, cache: Cache, repository: str, watcher: Watcher) -> None:
        self.repository = repository
        self._watcher = watcher
        self._cache_folder = cache.folder
        self._folder = cache.repository_folder(repository)

    def has(self, file: RemoteFile) -> bool:
        """Returns whether the file's content is in the cache; content of wrong size is deleted."""
        blob = self._blob(file)
        try:
            size = blob.stat().st_size
        except OSError:
            return False
        if size != file.size:
            self._watcher.note(f"{file.path} in the cache has the wrong size; fetching it again")
            blob.unlink()
        return size == file.size

    def partial(self, file: RemoteFile) -> PartialFile:
        """Opens the partial download of a file, which may be new, to append to it."""
        received = self._received_bytes(file)
        if received > _LONG_TO_CHECK:
            self._watcher.note(f"reading the received part of {file.path} again, for its checksum")
        return PartialFile(self._partial_path(file), file.size, file.checksum)

    def keep(self, file: RemoteFile, received: PartialFile) -> None:
        """Moves a file to `blobs`; raises HubError, and deletes it, if its checksum is wrong."""
        if not received.is_verified:
            self._forget(file)
            raise HubError(f"{file.path} arrived with a wrong checksum and was removed; pull again")
        blob = self._blob(file)
        blob.parent.mkdir(parents=True, exist_ok=True)
        os.replace(received.path, blob)
        self._forget(file)

    def require_space(self, name: ModelName, files: Sequence[RemoteFile]) -> None:
        """Raises HubError if the disk has no space for the bytes of `files` still to download."""
        missing = [file for file in files if not self.has(file)]
        needed = sum(file.size - self._received_bytes(file) for file in missing)
        free = shutil.disk_usage(_existing(self._cache_folder)).free
        if needed > free:
            raise HubError(
                f"{name} needs {format_bytes(needed)}, and {self._cache_folder} has"
                f" {format_bytes(free)} free; `sharpi rm` makes room, HF_HOME moves the cache"
            )

    @contextmanager
    def locked(self, file: RemoteFile) -> Iterator[None]:
        """Holds a file's lock, which is huggingface_hub's too, so that one program fetches it."""
        path = self._cache_folder / ".locks" / self._folder.name / f"{file.checksum}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                stack.enter_context(WeakFileLock(path, timeout=_LOCK_TIMEOUT_SECONDS))
            except Timeout:
                self._watcher.note(f"another program is fetching {file.path}; waiting for it")
                stack.enter_context(WeakFileLock(path))
            yield

    def _received_bytes(self, file: RemoteFile) -> int:
        path = self._partial_path(file)
        return path.stat().st_size if path.exists() else 0

    def _forget(self, file: RemoteFile) -> None:
        """Removes a file's folder in `partial`, and `partial` itself if it is then empty."""
        shutil.rmtree(self._folder / "partial" / file.checksum, ignore_errors=True)
        with suppress(OSError):  # another download uses the folder
            (self._folder / "partial").rmdir()

    def _blob(self, file: RemoteFile) -> Path:
        return self._folder / "blobs" / file.checksum

    def _partial_path(self, file: RemoteFile) -> Path:
        return self._folder / "partial" / file.checksum / file.path


def _existing(folder: Path) -> Path:
    return next(each for each in (folder, *folder.absolute().parents) if each.exists())
