"""An entry point built for the CPU, which checks a launch's arguments and reports its faults."""

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from kernel_build import engine_library, source_line

from sharpi.device.launch import Argument, Span

REFERENCED = -1  # in place of an argument's number: memory found through a table
_SCALARS = {
    np.int32: ("i4", ctypes.c_int32),
    np.int64: ("i8", ctypes.c_int64),
    np.float32: ("f4", ctypes.c_float),
}
_ENGINE = threading.Lock()  # it runs one launch at a time


class LaunchError(AssertionError):
    """A kernel did something that a GPU forbids or leaves undefined, or its launch was wrong."""


class Cells(ctypes.Structure):
    """What is known of the accesses to some memory, as shim/abi.h declares it."""

    _fields_ = (
        ("begin", ctypes.c_uint64),
        ("words", ctypes.c_void_p),
        ("bytes", ctypes.c_void_p),
    )


class Region(ctypes.Structure):
    """Bytes that a launch may touch, as shim/abi.h declares them."""

    _fields_ = (
        ("begin", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("cells", Cells),
        ("argument", ctypes.c_int),
        ("writable", ctypes.c_uint),
    )


class Fault(ctypes.Structure):
    """The first fault of a launch, as shim/abi.h declares it."""

    _fields_ = (
        ("what", ctypes.c_char * 256),
        ("file", ctypes.c_char * 64),
        ("line", ctypes.c_int),
        ("argument", ctypes.c_int),
        ("instruction", ctypes.c_uint64),
        ("block", ctypes.c_uint * 3),
        ("thread", ctypes.c_uint),
    )


class Request(ctypes.Structure):
    """A launch, as shim/abi.h declares it."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint),
        ("shared_bytes", ctypes.c_uint),
        ("order", ctypes.c_uint),
        ("check", ctypes.c_uint),
        ("num_regions", ctypes.c_uint),
        ("is_dependent", ctypes.c_uint),
        ("regions", ctypes.POINTER(Region)),
        ("fault", ctypes.POINTER(Fault)),
    )


@dataclass(frozen=True)
class Shape:
    """The number of threads, and the order in which those of a block run."""

    grid: tuple[int, int, int]
    block: int
    shared_bytes: int
    order: int
    is_dependent: bool = False


class CpuKernel:
    """One entry point of a library that kernel_build made.

    `with_lines` makes the same library with the numbers of lines, for the wording of a fault.
    """

    def __init__(self, entry: str, library: Path, with_lines: Callable[[], Path]) -> None:
        engine_library()
        self.entry = entry
        self._with_lines = with_lines
        loaded = ctypes.CDLL(str(library))
        try:
            self._launch = getattr(loaded, f"launch_{entry}")
        except AttributeError:
            raise LaunchError(f"{entry}: no such entry point in its file") from None
        described = ctypes.create_string_buffer(1024)
        loaded[f"signature_{entry}"](described)
        self.signature = described.value.decode().split()

    def prepared(
        self, shape: Shape, arguments: Sequence[Argument], regions: Sequence[Region] | None
    ) -> "PreparedLaunch":
        """Packs a launch, which may then run any number of times.

        Accesses are checked against `regions`, if the library was built for it; not with None.
        Raises LaunchError for wrong arguments.
        """
        given = regions or ()
        request = Request(
            shape.grid,
            shape.block,
            shape.shared_bytes,
            shape.order,
            regions is not None,
            len(given),
            shape.is_dependent,
            (Region * len(given))(*given),
        )
        return PreparedLaunch(self, request, self._packed(arguments))

    def start(self, request: Request, pointers: Any) -> None:
        """Runs a launch; raises LaunchError for faults of the kernel."""
        fault = Fault()
        request.fault = ctypes.pointer(fault)
        with _ENGINE:
            self._launch(ctypes.byref(request), pointers)
        if fault.what:
            raise LaunchError(f"{self.entry}: {self._worded(fault)}")

    def _packed(self, arguments: Sequence[Argument]) -> list[Any]:
        if len(arguments) != len(self.signature):
            given, taken = len(arguments), len(self.signature)
            raise LaunchError(f"{self.entry}: {given} arguments, the kernel takes {taken}")
        packed = list(map(_typed, arguments))
        kinds = [kind for kind, _ in packed]
        if kinds != self.signature:
            raise LaunchError(f"{self.entry}: {_difference(kinds, self.signature)}")
        return [value for _, value in packed]

    def _worded(self, fault: Fault) -> str:
        what = fault.what.decode()
        if fault.argument >= REFERENCED:
            what += (
                f", in argument {fault.argument}"
                if fault.argument >= 0
                else ", in referenced memory"
            )
        where = f"{fault.file.decode()}:{fault.line}"
        if fault.instruction:
            where = source_line(self._with_lines(), fault.instruction - 1)
        return f"{what}, at {where}, block {tuple(fault.block)}, thread {fault.thread}"


class PreparedLaunch:
    """A launch whose arguments are packed as the kernel takes them, by address."""

    def __init__(self, kernel: CpuKernel, request: Request, values: list[Any]) -> None:
        self._kernel, self._request, self._values = kernel, request, values
        self._pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))

    def run(self) -> None:
        """Runs the launch; raises LaunchError for faults of the kernel."""
        self._kernel.start(self._request, self._pointers)


def _typed(argument: Argument) -> tuple[str, Any]:
    """Returns an argument's type, as signatures name it, and its value for ctypes."""
    if argument is None:
        return "p8", ctypes.c_uint64(0)
    if isinstance(argument, Span):
        return "p8", ctypes.c_uint64(argument.address)
    if type(argument) not in _SCALARS:
        return type(argument).__name__, None
    kind, as_passed = _SCALARS[type(argument)]
    return kind, as_passed(argument.item())


def _difference(given: Sequence[str], taken: Sequence[str]) -> str:
    index = next(i for i, kind in enumerate(given) if kind != taken[i])
    return f"argument {index} is {given[index]}, the kernel takes {taken[index]}"
