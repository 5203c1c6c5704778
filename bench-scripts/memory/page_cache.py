"""The cached part of a file, dropping it from the page cache, and the kernel's read-ahead."""

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np

_DROP_ALL = Path("/proc/sys/vm/drop_caches")
_LIBC = ctypes.CDLL(None, use_errno=True)


def cached_share(path: Path) -> float:
    """Returns the cached part of a file's pages, 0 to 1 (mincore(2): of the user's own files)."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        pages = np.zeros(-(-len(mapped) // mmap.PAGESIZE), np.uint8)
        view = np.frombuffer(mapped, np.uint8)
        start, flags = ctypes.c_void_p(view.ctypes.data), ctypes.c_void_p(pages.ctypes.data)
        failed = _LIBC.mincore(start, ctypes.c_size_t(len(mapped)), flags)
        del view  # the mapping cannot be closed while a view exists
    if failed:
        raise OSError(ctypes.get_errno(), "mincore failed", str(path))
    return float((pages & 1).mean())


def drop_cached(path: Path, tolerated: float = 0.01) -> float:
    """Drops a file's pages; returns the part that stays all the same, 0 to 1.

    The whole page cache is dropped only if more than `tolerated` stays and the user is root.
    """
    with path.open("rb") as file:
        os.fsync(file.fileno())  # unwritten pages cannot be dropped
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if cached_share(path) > tolerated and os.access(_DROP_ALL, os.W_OK):
        _DROP_ALL.write_text("1")
    return cached_share(path)


def read_ahead_bytes(path: Path) -> int | None:
    """Returns the most that the kernel reads at a fault in a mapped file; None if unknown."""
    device = os.stat(path).st_dev
    folder = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    for queue in (folder / "queue", folder.parent / "queue"):  # a partition uses its disk's
        if (queue / "read_ahead_kb").exists():
            return 1024 * int((queue / "read_ahead_kb").read_text())
    return None
