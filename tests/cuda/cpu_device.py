"""A device whose memory is the host's and whose kernels run on the CPU, thread by thread."""

import ctypes
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from kernel_build import build_kernels, engine_library, source_line

from sharpi.device.device import HostArray, Work
from sharpi.device.kernel_source import kernel_source
from sharpi.device.launch import Argument, Kernel, Launch, Memory, Span

ALIGNMENT = 256
FORWARD, BACKWARD = 0, 1  # any other order is the seed of a random one
_SIGNATURE = {np.int32: "i4", np.int64: "i8", np.float32: "f4"}
_ADDRESS = re.compile(r" @pc=0x([0-9a-f]+)")


class LaunchError(AssertionError):
    """The kernel did what a GPU forbids or leaves undefined, or was launched wrongly."""


class CpuMemory:
    """Bytes of 0xff: floats that were never set read as NaN, ids as -1."""

    def __init__(self, num_bytes: int) -> None:
        room = np.full(num_bytes + ALIGNMENT, 0xFF, np.uint8)
        start = -room.ctypes.data % ALIGNMENT
        self.array: npt.NDArray[np.uint8] = room[start : start + num_bytes]

    @property
    def address(self) -> int:
        return self.array.ctypes.data

    @property
    def num_bytes(self) -> int:
        return len(self.array)


class CpuKernel:
    """One built entry point."""

    def __init__(self, kernel: Kernel, check: bool, source: str | None = None) -> None:
        text = kernel_source(kernel.file) if source is None else source
        self.name = kernel.entry
        self.path = _built(text, kernel.quant_type, check)
        library = _loaded(self.path)
        self.run = getattr(library, f"launch_{kernel.entry}")
        signature = ctypes.create_string_buffer(1024)
        getattr(library, f"signature_{kernel.entry}")(signature)
        self.signature = signature.value.decode().split()

    def pack(self, arguments: tuple[Argument, ...]) -> tuple[list[Any], ctypes.Array[Any]]:
        """Arguments as a launch takes them: addresses of values; raises where they do not fit."""
        if len(arguments) != len(self.signature):
            raise LaunchError(
                f"{self.name}: {len(arguments)} arguments, the kernel takes {len(self.signature)}"
            )
        values = [self._value(i, a) for i, a in enumerate(arguments)]
        return values, (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))

    def _value(self, index: int, argument: Argument) -> Any:
        wanted = self.signature[index]
        if argument is None or isinstance(argument, Span):
            given, value = "P8", ctypes.c_uint64(0 if argument is None else argument.address)
            return self._checked(index, given, wanted, value)
        given = _SIGNATURE.get(type(argument), type(argument).__name__)
        bits = np.asarray(argument).tobytes()
        return self._checked(index, given, wanted, ctypes.create_string_buffer(bits, len(bits)))

    def _checked(self, index: int, given: str, wanted: str, value: Any) -> Any:
        if given != wanted:
            raise LaunchError(
                f"{self.name}: argument {index} is {given}, the kernel takes {wanted}"
            )
        return value


class CpuDevice:
    """`sharpi.device.device.Device` on the host's memory.

    With `check`, a launch fails with kernel, line, block and thread where threads race, an access
    is misaligned or outside the arguments' bounds, or shared memory is read before it is written.
    """

    def __init__(self, check: bool = True, order: int = FORWARD) -> None:
        self.check = check
        self.order = order
        self.sources: dict[str, str] = {}  # texts that stand in for files

    def allocate(self, num_bytes: int) -> CpuMemory:
        return CpuMemory(num_bytes)

    def mapped(self, num_bytes: int) -> tuple[Memory, npt.NDArray[np.uint8]]:
        memory = CpuMemory(num_bytes)
        return memory, memory.array

    def upload(self, target: Span, source: HostArray) -> None:
        data = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
        host_bytes(target)[: len(data)] = data

    def download(self, source: Span, target: HostArray) -> None:
        data = host_bytes(source)[: target.nbytes]
        target[...] = data.view(target.dtype).reshape(target.shape)

    def launch(self, launch: Launch) -> None:
        kernel = self._kernel(launch.kernel)
        engine = engine_library()
        engine.coc_clear_regions()
        for index, argument in enumerate(launch.arguments):
            if isinstance(argument, Span):
                _register(argument, int(index in launch.writes), f"argument {index}")
        for span in launch.reaches:
            _register(span, 0, "reached memory")
        values, pointers = kernel.pack(launch.arguments)
        shape = (ctypes.c_uint * 7)(*launch.grid, launch.block, 1, 1, launch.shared_bytes)
        error = ctypes.create_string_buffer(512)
        size = ctypes.c_size_t(len(error))
        if kernel.run(shape, pointers, self.order, int(self.check), error, size):
            raise LaunchError(f"{kernel.name}: {_located(error.value.decode(), kernel.path)}")
        del values

    def matmul(self, x: Span, weights: Span, out: Span, shape: tuple[int, int, int]) -> None:
        tokens, rows, columns = shape
        left = host_bytes(x).view(np.float16)[: tokens * columns].reshape(tokens, columns)
        right = host_bytes(weights).view(np.float16)[: rows * columns].reshape(rows, columns)
        with np.errstate(over="ignore"):
            product = (left.astype(np.float32) @ right.astype(np.float32).T).astype(np.float16)
        self.upload(out, product)

    def record(self, work: Sequence[Work]) -> Work:
        calls = tuple(work)

        def replay() -> None:
            for call in calls:
                call()

        return replay

    def synchronise(self) -> None:
        """Everything is done when its call returns."""

    def _kernel(self, kernel: Kernel) -> CpuKernel:
        return _kernel(kernel, self.check, self.sources.get(kernel.file))


def host_bytes(span: Span) -> npt.NDArray[np.uint8]:
    """The host's view of a span."""
    memory = span.memory
    assert isinstance(memory, CpuMemory)
    return memory.array[span.offset : span.offset + span.num_bytes]


@cache
def _kernel(kernel: Kernel, check: bool, source: str | None) -> CpuKernel:
    return CpuKernel(kernel, check, source)


@cache
def _built(source: str, quant_type: str | None, check: bool) -> Path:
    defines = () if quant_type is None else (f"ONLY_{quant_type.upper()}",)
    return build_kernels(source, defines, check)


@cache
def _loaded(path: Path) -> ctypes.CDLL:
    engine_library()
    return ctypes.CDLL(str(path))


def _register(span: Span, kind: int, name: str) -> None:
    engine_library().coc_region(
        ctypes.c_void_p(span.address), ctypes.c_size_t(span.num_bytes), kind, name.encode(), 1
    )


def _located(message: str, library: Path) -> str:
    found = _ADDRESS.search(message)
    if found is None:
        return message
    return message.replace(found[0], f" at {source_line(library, int(found[1], 16) - 1)}")
