"""Drops pages of a mapped file from the page cache, to free memory."""

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def drop_pages(data: NDArray[np.uint8], path: Path, offset: int) -> None:
    """Drops the pages that are entirely within `data`, a mapping of a file from `offset` on.

    The contents stay valid: a dropped page is read again when it is used. Keeps pages that other
    programs use. Does nothing if the system does not support it.
    """
    begin = -(-data.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    num_bytes = data.ctypes.data + data.nbytes - begin
    if num_bytes < mmap.PAGESIZE or not hasattr(os, "posix_fadvise"):
        return
    size = ctypes.c_size_t(num_bytes // mmap.PAGESIZE * mmap.PAGESIZE)
    ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), size, mmap.MADV_DONTNEED)
    try:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), offset, data.nbytes, os.POSIX_FADV_DONTNEED)
    except OSError:
        return
