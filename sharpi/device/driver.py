"""What CuPy does not wrap of the driver: words of streams, dependent launches.

A stream writes a uint32 in page-locked memory, or waits for its value: graphs can capture both, and
no kernel has to spin. A programmatic dependent launch may start before the preceding kernel has
ended; in a graph capture it becomes a programmatic edge.
"""

import ctypes
from collections.abc import Sequence
from ctypes import c_char, c_int, c_uint, c_uint64, c_void_p
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sharpi.errors import DeviceError

_EQUAL = 1  # CU_STREAM_WAIT_VALUE_EQ
CAPABILITY = 90  # the first compute capability that has them
_SERIALISATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_VALUE_BYTES = 64
_DRIVERS = ("libcuda.so.1", "libcuda.so", "nvcuda.dll")


def write_word(stream: int, address: int, value: int) -> None:
    """Makes the stream set a uint32 that the host sees, last; raises StreamWordError."""
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


class LaunchAttribute(ctypes.Structure):
    """The driver's CUlaunchAttribute, with an int as its value."""

    _fields_ = (
        ("id", c_int),
        ("pad", c_int),
        ("value", c_int),
        ("rest", c_char * (_VALUE_BYTES - ctypes.sizeof(c_int))),
    )


class LaunchConfig(ctypes.Structure):
    """The driver's CUlaunchConfig."""

    _fields_ = (
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_bytes", c_uint),
        ("stream", c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("num_attributes", c_uint),
    )


class DependentLaunchError(DeviceError):
    """The driver refused a programmatic dependent launch, possibly because of a graph capture."""


def launch_dependent(
    function: int,
    grid: tuple[int, int, int],
    block: int,
    shared_bytes: int,
    stream: int,
    arguments: Sequence[np.generic],
) -> None:
    """Launches a CUfunction that may start before the preceding kernel on the stream has ended.

    `function` and `stream` are the driver's handles. Raises DependentLaunchError if the driver
    refuses.
    """
    attribute = LaunchAttribute(_SERIALISATION, 0, 1)
    config = LaunchConfig(grid, (block, 1, 1), shared_bytes, stream, ctypes.pointer(attribute), 1)
    values = [np.array(argument) for argument in arguments]
    pointers = (c_void_p * len(values))(*(value.ctypes.data for value in values))
    result = _launch()(ctypes.byref(config), function, pointers, None)
    if result:
        raise DependentLaunchError(f"the driver refuses programmatic launches (error {result})")


@cache
def _launch() -> "ctypes._NamedFuncPointer":
    try:
        function: ctypes._NamedFuncPointer = driver().cuLaunchKernelEx
    except AttributeError as error:
        raise DependentLaunchError("the driver has no programmatic launches") from error
    function.restype = c_int
    function.argtypes = [c_void_p, c_void_p, c_void_p, c_void_p]
    return function
