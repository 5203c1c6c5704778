"""Stream memory operations: a stream writes a uint32 in page-locked memory, or waits for its value.

CuPy does not wrap cuStreamWriteValue32 and cuStreamWaitValue32, so the driver is called directly.
Graphs can capture both, and no kernel has to spin.
"""

import ctypes
from ctypes import c_int, c_uint, c_uint64, c_void_p
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sharpi.errors import DeviceError

_EQUAL = 1  # CU_STREAM_WAIT_VALUE_EQ
_DRIVERS = ("libcuda.so.1", "libcuda.so", "nvcuda.dll")


def write_word(stream: int, address: int, value: int) -> None:
    """Makes the stream set a uint32, visible to the host, after all earlier work.

    Raises StreamWordError.
    """
    _check("write", _operation("cuStreamWriteValue32_v2")(stream, address, value, 0))


def await_word(stream: int, address: int, value: int) -> None:
    """Makes the stream wait until a uint32 equals the value; raises StreamWordError."""
    _check("wait for", _operation("cuStreamWaitValue32_v2")(stream, address, value, _EQUAL))


def are_supported(stream: Any, address: int, host: npt.NDArray[np.uint8]) -> bool:
    """Returns True if a stream can wait for a uint32's value, and then write another uint32.

    `host` is an array over page-locked memory, `address` its address on the GPU. Raises
    StreamWordError if the driver refuses, and DeviceError without a driver.
    """
    words = host.view(np.uint32)
    words[:2] = 1, 0
    await_word(stream.ptr, address, 1)
    write_word(stream.ptr, address + 4, 1)
    stream.synchronize()
    return bool(words[1] == 1)


class StreamWordError(DeviceError):
    """The driver refused a stream memory operation, possibly because of a graph capture."""


def _check(what: str, result: int) -> None:
    if result:
        raise StreamWordError(f"the driver cannot {what} words in a stream (error {result})")


@cache
def _operation(name: str) -> "ctypes._NamedFuncPointer":
    function: ctypes._NamedFuncPointer = getattr(driver(), name)
    function.restype, function.argtypes = c_int, [c_void_p, c_uint64, c_uint, c_uint]
    return function


@cache
def driver() -> ctypes.CDLL:
    """Returns the driver's library; raises DeviceError if there is none."""
    for name in _DRIVERS:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise DeviceError("the NVIDIA driver's library was not found")
