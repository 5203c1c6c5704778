"""Programmatic dependent launches: kernels that may start before the preceding one has ended.

CuPy does not wrap them, so the driver is called directly. In a graph capture they become
programmatic edges of the graph.
"""

import ctypes
from collections.abc import Sequence
from ctypes import c_char, c_int, c_uint, c_void_p
from functools import cache

import numpy as np

from sharpi.device.stream_words import driver
from sharpi.errors import DeviceError

CAPABILITY = 90  # the first compute capability that has them
_SERIALISATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_VALUE_BYTES = 64


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
