"""Awake: keeps this process's core from sleeping while a rank waits for a message.

After sleeping, a core of a virtual machine computes slowly for a few milliseconds. With two ranks
on a core each, one sequence took 3 % longer in a measurement.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_void_p
from functools import cache

from sharpi.native import declare, open_library
from sharpi.system.closing import Closing


class Awake(Closing):
    """A native thread of the lowest priority, which spins while `waiting` lasts.

    Every other thread runs before it. If the system offers no such priority, nothing keeps the core
    awake.
    """

    def __init__(self) -> None:
        self._handle: int | None = _library().sharpi_awake_create()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Keeps the core awake within the context, for at most a tenth of a second."""
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
