"""Words in page-locked memory that a stream writes, or waits for: the driver's stream operations.

CuPy has no names for them, so the driver is called directly. They can be captured into a graph, and
cost a GPU no thread that spins.
"""

import ctypes
from ctypes import c_int, c_uint, c_uint64, c_void_p
from functools import cache

from sharpi.errors import DeviceError

_EQUAL = 1  # CU_STREAM_WAIT_VALUE_EQ
_DRIVERS = ("libcuda.so.1", "libcuda.so", "nvcuda.dll")


def write_word(stream: int, address: int, value: int) -> None:
    """Has the stream set a uint32 after everything before, and the host see it.

    Raises StreamWordError.
    """
    _check("writes", _operation("cuStreamWriteValue32_v2")(stream, address, value, 0))


def await_word(stream: int, address: int, value: int) -> None:
    """Has the stream wait until a uint32 equals the value; raises StreamWordError."""
    _check("waits for", _operation("cuStreamWaitValue32_v2")(stream, address, value, _EQUAL))


class StreamWordError(DeviceError):
    """The driver refused such an operation, within a capture perhaps."""


def _check(what: str, result: int) -> None:
    if result:
        raise StreamWordError(f"the driver {what} no words in a stream (error {result})")


@cache
def _operation(name: str) -> "ctypes._NamedFuncPointer":
    function: ctypes._NamedFuncPointer = getattr(_driver(), name)
    function.restype, function.argtypes = c_int, [c_void_p, c_uint64, c_uint, c_uint]
    return function


@cache
def _driver() -> ctypes.CDLL:
    for name in _DRIVERS:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise DeviceError("the NVIDIA driver's library is not found")
