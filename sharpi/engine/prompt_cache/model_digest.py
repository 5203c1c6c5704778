"""The digest of a model's whole file, which is computed once for each state of the file."""

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from sharpi.engine.prompt_cache.checksum import DIGEST_BYTES, Checksum
from sharpi.ops.cpu.buffers import aligned_bytes
from sharpi.system.files import write_atomically

_PIECE_BYTES = 8 << 20
_FOLDER = "files"


class ModelDigest:
    """A digest of 16 bytes, computed from every byte of all parts of a model.

    Reading a large model takes a while, so the result is kept in `folder` under the identity of
    the parts: device, inode, size and times of change of each. Changing a file changes its
    identity.
    """

    def __init__(self, folder: Path, parts: Sequence[Path]) -> None:
        self._parts = tuple(parts)
        self._identity = _identity(self._parts)
        name = blake2b(repr(self._identity).encode(), digest_size=DIGEST_BYTES).hexdigest()
        self._path = folder / _FOLDER / f"{name}.digest"

    def known(self) -> bytes | None:
        """Returns the stored digest; None if it was not computed before."""
        with suppress(OSError):
            data = self._path.read_bytes()
            if len(data) == 2 * DIGEST_BYTES and data[DIGEST_BYTES:] == _check(data[:DIGEST_BYTES]):
                return data[:DIGEST_BYTES]
        return None

    def compute(self, should_stop: threading.Event | None = None) -> bytes | None:
        """Computes the digest from all bytes of the model, stores it and returns it.

        Returns None if `should_stop` is set, or if a file is changed meanwhile. Raises OSError.
        """
        whole = blake2b(digest_size=DIGEST_BYTES)
        buffer = aligned_bytes(_PIECE_BYTES)
        for part in self._parts:
            checksum = Checksum()
            with part.open("rb", buffering=0) as file:
                while count := file.readinto(buffer.data):
                    if should_stop is not None and should_stop.is_set():
                        return None
                    checksum.add(buffer[:count])
            whole.update(checksum.digest())
        if _identity(self._parts) != self._identity:
            return None
        self._keep(whole.digest())
        return whole.digest()

    def _keep(self, digest: bytes) -> None:
        with suppress(OSError):  # it is computed again next time
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            write_atomically(self._path, digest + _check(digest))


def _check(digest: bytes) -> bytes:
    return blake2b(digest, digest_size=DIGEST_BYTES).digest()


def _identity(parts: Sequence[Path]) -> tuple[tuple[int, ...], ...]:
    states = [os.stat(part) for part in parts]
    return tuple((s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for s in states)
