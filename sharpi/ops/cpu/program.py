"""A recorded step, ready to be replayed: native operations, their memory, and the call.

Python touches it once a step: the data of the step goes in, logits and routes are read in place.
"""

import ctypes
from collections.abc import Iterable
from ctypes import Structure, c_int32
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.errors import SharpiError
from sharpi.ops.cpu import abi
from sharpi.ops.cpu.library import ThreadPool, load_library

IntArray = npt.NDArray[np.int32]
Rounding = Literal["int8", "int16", "f32"]


class ProgramLimits(Struct, frozen=True):
    """What one replay can hold, and the kernels it uses."""

    max_tokens: int
    max_outputs: int
    max_positions: int
    precision: Rounding = "int8"
    instruction_set: str | None = None

    @property
    def precision_code(self) -> int:
        """The ABI's `Rounding`."""
        return {"int8": 0, "f32": 1, "int16": 2}[self.precision]


class ArenaSlice(NamedTuple):
    """An array of 4-byte values in the arena; `offset` in bytes."""

    offset: int
    width: int
    rows: int


class Program:
    """Native operations over one arena; built by the recorder, then run once a step."""

    def __init__(
        self, limits: ProgramLimits, arena: npt.NDArray[np.uint8], alive: list[object]
    ) -> None:
        self.limits = limits
        self._library = load_library()
        self._arena = arena
        self._alive = alive
        name = limits.instruction_set
        self._handle = self._library.sharpi_program_create(
            None if name is None else name.encode(),
            limits.max_tokens,
            limits.max_outputs,
            limits.max_positions,
        )
        self._scratch_bytes = 0
        self.logits = np.zeros((0, 0), np.float32)
        self.routes: list[IntArray] = []
        self.router_logits: list[npt.NDArray[np.float32]] = []

    @property
    def handle(self) -> int:
        """The native object; raises ValueError after `close`."""
        if self._handle is None:
            raise ValueError("the program is closed")
        return int(self._handle)

    @property
    def num_bytes(self) -> int:
        """Bytes of buffers and scratch, as far as they will ever be touched."""
        return int(self._arena.nbytes + self._scratch_bytes)

    def append(self, kind: int, params: Structure) -> None:
        """Adds one operation; raises RuntimeError when the struct is not the library's."""
        size = ctypes.sizeof(params)
        if self._library.sharpi_program_add(self._handle, kind, ctypes.byref(params), size):
            raise RuntimeError(f"the native library does not know operation {kind} of {size} bytes")

    def seal(
        self, logits: ArenaSlice, routes: list[ArenaSlice], router_logits: list[ArenaSlice]
    ) -> None:
        """Allocates the scratch; from now on what a step leaves behind can be looked at."""
        self.seal_scratch()
        self.logits = self._view(logits).view(np.float32)
        self.routes = [self._view(place).view(np.int32) for place in routes]
        self.router_logits = [self._view(place).view(np.float32) for place in router_logits]

    def seal_scratch(self, within: Iterable["Program"] = ()) -> None:
        """The same for a program whose results are in memory of others.

        It takes the scratch of one of the programs `within` that has enough, and is not run beside
        it then.
        """
        if any(
            self._library.sharpi_program_seal_within(self._handle, p.handle) == 0 for p in within
        ):
            return
        self._scratch_bytes = self._library.sharpi_program_seal(self._handle)
        if self._scratch_bytes < 0:
            raise SharpiError(
                "not enough memory for the engine's buffers; lower --batch-size or -c"
            )

    def keep(self, array: np.ndarray | None) -> int | None:
        """The array's address; the array lives as long as the program."""
        if array is None:
            return None
        self._alive.append(array)
        return int(array.ctypes.data)

    def _view(self, place: ArenaSlice) -> npt.NDArray[np.uint32]:
        offset, width, rows = place
        return self._arena[offset : offset + rows * width * 4].view(np.uint32).reshape(rows, width)

    def run(self, step: abi.Step, pool: ThreadPool, num_threads: int) -> None:
        """One pass; logits of output i are then `logits[i]` until the next."""
        if self._library.sharpi_program_run(
            self._handle, pool.handle, ctypes.byref(step), num_threads
        ):
            raise SharpiError("not enough memory for another thread's buffers; use fewer threads")

    def close(self) -> None:
        """Frees the native side; a second call does nothing."""
        if self._handle is not None:
            self._library.sharpi_program_destroy(self._handle)
            self._handle = None


def int_pointer(array: IntArray) -> "ctypes._Pointer[c_int32]":
    """The array as the ABI's int32*; the caller keeps the array."""
    return array.ctypes.data_as(ctypes.POINTER(c_int32))
