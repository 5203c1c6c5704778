"""The kernels compiled for ARM, under an emulator: started, and called like the library.

The emulated process and this one share memory at one address. What a call points to is placed
there first; the rest of a call is a line of numbers.
"""

import ctypes
import mmap
import os
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from arm_driver import EMULATORS
from kernel_library import ACTIVATION, INT8, Bytes, Floats, dequantised
from numpy.typing import NDArray

from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cpu import abi

PROCESSORS = {"max": True, "cortex-a53": False}  # with dot products or without
_ADDRESS, _BYTES = 1 << 36, 1 << 27
_FIXED_NOREPLACE = 0x100000  # MAP_FIXED_NOREPLACE of <sys/mman.h>


class SharedMemory:
    """Memory at a fixed address that another process can map there, too; handed out in order."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("sharpi-emulated")
        os.truncate(self.descriptor, _BYTES)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        access, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _FIXED_NOREPLACE
        at = libc.mmap(_ADDRESS, _BYTES, access, flags, self.descriptor, 0)
        assert at == _ADDRESS, os.strerror(ctypes.get_errno())
        self._bytes = np.ctypeslib.as_array((ctypes.c_uint8 * _BYTES).from_address(_ADDRESS))
        self._used = 0

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments that the other process needs."""
        return str(self.descriptor), str(_ADDRESS), str(_BYTES)

    def clear(self) -> None:
        """Allows everything handed out so far to be handed out again."""
        self._used = 0

    def take(self, num_bytes: int) -> Bytes:
        """Returns zeroed bytes that begin on a cache line."""
        start = self._used
        self._used += -(-num_bytes // 64) * 64
        assert self._used <= _BYTES, "too much for the shared memory"
        self._bytes[start : start + num_bytes] = 0
        return self._bytes[start : start + num_bytes]

    def place(self, array: NDArray[Any], *, at_the_end: bool = False) -> NDArray[Any]:
        """Copies an array into the memory, or returns it if it is there already.

        `at_the_end`: the copy ends right before memory that must not be read.
        """
        if _ADDRESS <= array.ctypes.data < _ADDRESS + _BYTES:
            return array
        size = array.nbytes
        memory = self._bytes[_BYTES - size :] if at_the_end else self.take(size)
        memory[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return memory.view(array.dtype).reshape(array.shape)


class EmulatedLibrary:
    """The library's functions by their names, on one emulated processor."""

    def __init__(self, driver: Path, processor: str, memory: SharedMemory) -> None:
        self.memory = memory
        emulator = next(filter(None, map(shutil.which, EMULATORS)))
        self._process = subprocess.Popen(
            [emulator, "-cpu", processor, str(driver), *memory.arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            pass_fds=[memory.descriptor],
        )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        return partial(self.call, name)

    def call(self, name: str, *arguments: Any) -> int:
        """Calls a function with ctypes arguments; arrays, bytes and structs are placed there."""
        line = " ".join([name, *(str(self._word(each)) for each in arguments)])
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        answer = self._process.stdout.readline()
        assert answer, f"{line}: the emulated process ended ({self._process.wait()})"
        return int(answer)

    def sharpi_instruction_set(self, name: bytes | None) -> bytes | None:
        """Returns the name of the kernels, which would be in the other process's memory."""
        return name or b"neon" if self.call("sharpi_instruction_set", name) else None

    def _word(self, argument: Any) -> int:
        if argument is None or isinstance(argument, int):
            return argument or 0
        if isinstance(argument, bytes):
            argument = np.frombuffer(argument + b"\0", np.uint8)
        elif isinstance(argument, ctypes.Array):
            argument = np.frombuffer(bytes(argument), np.uint8)
        elif not isinstance(argument, np.ndarray):
            argument = self._struct(argument._obj)
        return int(self.memory.place(argument).ctypes.data)

    def _struct(self, struct: ctypes.Structure) -> Bytes:
        if isinstance(struct, abi.Step):
            struct = self._step(struct)
        return np.frombuffer(bytes(struct), np.uint8)

    def _step(self, step: abi.Step) -> abi.Step:
        tokens, pages = step.num_tokens, step.pages_per_sequence
        sizes = {"ids": tokens, "positions": tokens, "sequences": tokens, "slots": tokens}
        sizes |= {"output_rows": step.num_outputs, "page_table": pages}
        sizes |= {"num_kept": 1, "kept_table": pages}
        placed = abi.Step.from_buffer_copy(step)
        for name, size in sizes.items():
            if not getattr(step, name):
                continue
            array = np.ctypeslib.as_array(getattr(step, name), (size,))
            pointer = self.memory.place(array).ctypes.data_as(ctypes.POINTER(ctypes.c_int32))
            setattr(placed, name, pointer)
        states = ctypes.cast(step.states, ctypes.POINTER(ctypes.c_uint64))
        if states:
            array = self.memory.place(np.ctypeslib.as_array(states, (1,)))
            placed.states = array.ctypes.data_as(ctypes.POINTER(ctypes.c_void_p))
        after = ctypes.cast(step.states_after, ctypes.POINTER(ctypes.c_uint64))
        if after:
            array = self.memory.place(np.ctypeslib.as_array(after, (step.num_tokens,)))
            placed.states_after = array.ctypes.data_as(ctypes.POINTER(ctypes.c_void_p))
        return placed

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0

    def matmul(self, kind: QuantType, weights: Bytes, x: Floats, precision: int = INT8) -> Floats:
        """Works like `kernel_library.matmul` for NEON; nothing may be read past the weights."""
        self.memory.clear()
        out = self.memory.take(4 * len(x) * len(weights)).view(np.float32)
        out[:] = np.nan
        placed = self.memory.place(weights, at_the_end=True)
        status = self.sharpi_matmul(
            b"neon", int(kind), precision, placed, len(weights), x.shape[1], x, len(x), out
        )
        assert status == 0, f"sharpi_matmul answered {status}"
        return out.reshape(len(x), len(weights)).copy()

    def dequantise(self, kind: QuantType, row: Bytes, columns: int) -> Floats:
        """Works like `kernel_library.dequantise` for NEON."""
        self.memory.clear()
        out = self.memory.take(4 * columns).view(np.float32)
        assert self.sharpi_dequantise(b"neon", int(kind), row, columns, out) == 0
        return out.copy()

    def quantise(self, x: Floats) -> NDArray[np.void]:
        """Works like `kernel_library.quantise` for NEON; nothing may be read past the values."""
        self.memory.clear()
        out = self.memory.take(-(-len(x) // 256) * ACTIVATION.itemsize).view(ACTIVATION)
        placed = self.memory.place(x, at_the_end=True)
        assert self.sharpi_quantise(b"neon", placed, len(x), out) == 0
        return out.copy()

    def rounded(self, x: Floats) -> NDArray[np.float64]:
        """Returns x (tokens, columns) after rounding, as the kernels multiply it."""
        return np.stack([dequantised(self.quantise(row))[: x.shape[1]] for row in x])
