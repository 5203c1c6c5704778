"""Giving memory back to the system once a model is gone."""

import contextlib
import ctypes
import gc


def release_memory() -> None:
    """Drops what only cycles hold, mappings among it, and trims the C library's heap."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
