"""Builds what tests compile: in the system's temporary folder, by one process at a time."""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def build_folder() -> Path:
    """Returns the folder in which builds are kept between runs."""
    folder = Path(tempfile.gettempdir()) / f"sharpi-tests-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def digest(*parts: str) -> str:
    """Returns a part of a file's name that changes with everything that the file was built from."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def built(target: Path, build: Callable[[Path], object]) -> Path:
    """Returns `target`; if it is missing, `build` writes it first, while other processes wait.

    A build that fails leaves nothing behind, so that a waiting process tries again.
    """
    if target.exists():
        return target
    with _alone(target):
        if not target.exists():
            partial = target.with_name(f"{target.name}.partial")
            build(partial)
            partial.replace(target)
    return target


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Holds a lock: other threads and processes that need the same file wait for it."""
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
