"""Limits the number of heaps of the C library, and the freed memory that they keep.

glibc does not return freed memory between blocks that are in use. If short-lived and long-lived
blocks alternate, as in a server, a heap grows for hours, although no more of it is in use.
"""

import contextlib
import ctypes

_ARENA_MAX, _NUM_HEAPS = -8, 2  # glibc's number of the setting, and its value


def share_heaps() -> None:
    """Makes threads that start later share two heaps; by default glibc has many more."""
    with contextlib.suppress(OSError, AttributeError):  # only glibc has mallopt
        ctypes.CDLL(None).mallopt(_ARENA_MAX, _NUM_HEAPS)


def trim_heaps() -> None:
    """Returns the free pages of all heaps to the system; other Python threads run meanwhile."""
    with contextlib.suppress(OSError, AttributeError):  # only glibc has malloc_trim
        ctypes.CDLL(None).malloc_trim(0)
