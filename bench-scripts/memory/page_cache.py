"""Functions that query and drop a file's pages in the page cache, and query the read-ahead."""

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np

_DROP_ALL = Path("/proc/sys/vm/drop_caches")
_LIBC = ctypes.CDLL(None, use_errno=True)


def cached_share(path: Path) -> float:
    """Returns the fraction of a file's pages in the page cache, 0 to 1.

    The user must own the file or be able to write it (mincore(2)).
    """
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
    """Drops a file's pages from the page cache; returns the fraction that stays, 0 to 1.

    If more than `tolerated` stays and the user is root, the entire page cache is dropped.
    """
    with path.open("rb") as file:
        os.fsync(file.fileno())  # unwritten pages cannot be dropped
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if cached_share(path) > tolerated and os.access(_DROP_ALL, os.W_OK):
        _DROP_ALL.write_text("1")
    return cached_share(path)


def read_ahead_bytes(path: Path) -> int | None:
    """Returns the largest read-ahead, in bytes, at a fault in a mapped file; None if unknown."""
    device = os.stat(path).st_dev
    folder = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    for queue in (folder / "queue", folder.parent / "queue"):  # a partition uses its disk's
        if (queue / "read_ahead_kb").exists():
            return 1024 * int((queue / "read_ahead_kb").read_text())
    return None
