"""Awake: keeps this process's CPU core from sleeping while a rank waits for a message.

After sleeping, a core of a virtual machine computes slowly for a few milliseconds. In a measurement
with two ranks, each on one core, this made decoding one sequence 3 % slower.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_void_p
from functools import cache

from sharpi.native import declare, open_library
from sharpi.system.process import Closing


class Awake(Closing):
    """A native thread of the lowest priority, which spins inside the `waiting` context.

    Every other thread runs before it. If the system does not support this priority, `waiting` does
    nothing.
    """

    def __init__(self) -> None:
        self._handle: int | None = _library().sharpi_awake_create()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Keeps the CPU core awake within the context, for at most a tenth of a second."""
        if self._handle is None:
            yield
            return
        _library().sharpi_awake_begin(self._handle)
        try:
            yield
        finally:
            if self._handle is not None:
                _library().sharpi_awake_end(self._handle)

    def close(self) -> None:
        if self._handle is not None:
            handle, self._handle = self._handle, None
            _library().sharpi_awake_destroy(handle)


@cache
def _library() -> ctypes.CDLL:
    signatures = {
        "sharpi_awake_create": (c_void_p, []),
        "sharpi_awake_destroy": (None, [c_void_p]),
        "sharpi_awake_begin": (None, [c_void_p]),
        "sharpi_awake_end": (None, [c_void_p]),
    }
    return declare(open_library(), signatures)
