"""The identity of a model: the digest of its whole file, and the name of its arithmetic."""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path

from msgspec.structs import asdict

from sharpi import __version__
from sharpi.engine.prompt_cache.record import DIGEST_BYTES, KEY_BYTES, Checksum
from sharpi.model.config import ModelConfig
from sharpi.ops.cpu.recorder_tape import aligned_bytes
from sharpi.resources import kernels_folder, native_library
from sharpi.settings import RunConfig
from sharpi.system.files import write_atomically
from sharpi.tiers.settings import EngineSettings

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
        """Digests all bytes; None if stopped or if a file changes meanwhile. Raises OSError."""
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


# Settings on which no bit depends: sizes, threads and what is told to the user.
_WITHOUT_EFFECT = (
    "context_size", "batch_size", "num_threads", "num_batch_threads", "notes", "kv_notes",
    "num_parallel", "num_kv_pages", "kv_keep", "window", "window_pages",
    "places",
)  # fmt: skip
_PACKAGES = ("model", "ops", "engine/backends", "device")  # whose code decides about the bits


def arithmetic_of(
    config: RunConfig, settings: EngineSettings, model: ModelConfig, gpu: str | None
) -> str:
    """Returns a name for the arithmetic of a loaded model; equal names mean equal bits."""
    fields = {k: v for k, v in asdict(settings).items() if k not in _WITHOUT_EFFECT}
    on_gpu = None if gpu is None else (gpu, config.batch_size, config.experts.miss)
    return repr((_code(), processor_name(), fields, model, on_gpu))


def key_of(digest: bytes, arithmetic: str) -> bytes:
    """Returns the key of a model's pages, from the digest of its file and the arithmetic."""
    return blake2b(digest + arithmetic.encode(), digest_size=KEY_BYTES).digest()


@cache
def _code() -> str:
    """Returns the version, and a digest of the code that computes keys and values."""
    digest = blake2b(digest_size=KEY_BYTES)
    for path in arithmetic_files():
        digest.update(path.name.encode() + path.read_bytes())
    return f"{__version__} {digest.hexdigest()}"


def arithmetic_files() -> Iterator[Path]:
    """Yields the files of code on which the bits of keys and values depend."""
    yield native_library()
    yield from sorted((kernels_folder() / "cuda").rglob("*.cu*"))
    package = Path(__file__).parents[2]
    for name in _PACKAGES:
        yield from sorted((package / name).rglob("*.py"))


@cache
def processor_name() -> str:
    """Returns the model name of the CPU, since approximate instructions differ between makers."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return os.uname().machine
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, os.uname().machine)
