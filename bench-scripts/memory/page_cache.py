"""What of a file the page cache holds, how to be rid of it, and how far ahead the kernel reads."""

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np

_DROP_ALL = Path("/proc/sys/vm/drop_caches")
_LIBC = ctypes.CDLL(None, use_errno=True)


def cached_share(path: Path) -> float:
    """The part of a file's pages that is cached, 0 to 1 (mincore(2): of the user's own files)."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        pages = np.zeros(-(-len(mapped) // mmap.PAGESIZE), np.uint8)
        view = np.frombuffer(mapped, np.uint8)
        start, flags = ctypes.c_void_p(view.ctypes.data), ctypes.c_void_p(pages.ctypes.data)
        failed = _LIBC.mincore(start, ctypes.c_size_t(len(mapped)), flags)
        del view  # the mapping cannot be closed while somebody looks at it
    if failed:
        raise OSError(ctypes.get_errno(), "mincore failed", str(path))
    return float((pages & 1).mean())


def drop_cached(path: Path, tolerated: float = 0.01) -> float:
    """Drops a file's pages; the part that stays all the same, 0 to 1.

    Everybody's page cache goes only where more than `tolerated` stays, and root asks.
    """
    with path.open("rb") as file:
        os.fsync(file.fileno())  # pages that are not written yet cannot go
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if cached_share(path) > tolerated and os.access(_DROP_ALL, os.W_OK):
        _DROP_ALL.write_text("1")
    return cached_share(path)


def read_ahead_bytes(path: Path) -> int | None:
    """What the kernel reads at a fault in a mapped file at most; None where it does not say."""
    device = os.stat(path).st_dev
    folder = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    for queue in (folder / "queue", folder.parent / "queue"):  # a partition has its disk's
        if (queue / "read_ahead_kb").exists():
            return 1024 * int((queue / "read_ahead_kb").read_text())
    return None
