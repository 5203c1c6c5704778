"""PartialFile: a partly downloaded file, which stays on disk so that a download can resume."""

import hashlib
from pathlib import Path

from sharpi.system.process import Closing

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
