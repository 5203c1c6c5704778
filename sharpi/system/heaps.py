"""Limits the heaps of the C library, and the freed memory that they keep.

glibc keeps freed memory that lies between blocks in use. If short and long uses alternate, as in a
server, a heap keeps growing for hours, although no more of it is in use than before.
"""

import contextlib
import ctypes

_ARENA_MAX, _NUM_HEAPS = -8, 2  # glibc's number of the setting, and its value


def share_heaps() -> None:
    """Makes threads that begin later share heaps; glibc would give each one its own."""
    with contextlib.suppress(OSError, AttributeError):  # only glibc has mallopt
        ctypes.CDLL(None).mallopt(_ARENA_MAX, _NUM_HEAPS)


def trim_heaps() -> None:
    """Returns the free pages of all heaps to the system; other threads run in the meantime."""
    with contextlib.suppress(OSError, AttributeError):  # only glibc has malloc_trim
        ctypes.CDLL(None).malloc_trim(0)
