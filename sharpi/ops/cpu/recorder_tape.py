"""Tape: the buffers and operations of a recording, and the places of buffers in the arena.

Buffers get their addresses only when the recording ends; the native structs are made then.
"""

from collections.abc import Callable, Mapping
from ctypes import Structure
from inspect import isfunction
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.ops.cpu.abi import OpKind, Rows
from sharpi.ops.cpu.program import Program, ProgramLimits

ALIGNMENT = 64


class Buffer(Struct):
    """The memory of one intermediate value of a recorded step."""

    num_bytes: int
    width: int  # numbers in a row
    rows: Rows
    first: int  # the index of the first operation that uses it
    last: int  # the index of the last operation that uses it
    kept: bool = False  # its memory is never reused
    offset: int = -1  # bytes from the start of the arena
    row_bytes: int = 0  # bytes of each row; 0 if the buffer has no rows


def assign_offsets(buffers: list[Buffer]) -> int:
    """Sets each buffer's offset in the arena by first fit, and returns the arena's size in bytes.

    Buffers that are not in use at the same time may overlap.
    """
    placed: list[Buffer] = []
    total = 0
    for buffer in sorted(buffers, key=lambda b: (b.first, -b.num_bytes)):
        placed = [other for other in placed if other.kept or other.last >= buffer.first]
        buffer.offset = _first_gap(placed, buffer.num_bytes)
        placed.append(buffer)
        total = max(total, buffer.offset + buffer.num_bytes)
    return total


def _first_gap(placed: list[Buffer], num_bytes: int) -> int:
    at = 0
    for other in sorted(placed, key=lambda b: b.offset):
        if at + num_bytes <= other.offset:
            break
        at = max(at, other.offset + _round_up(other.num_bytes))
    return at


def _round_up(count: int) -> int:
    return (count + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def aligned_bytes(num_bytes: int) -> npt.NDArray[np.uint8]:
    """Returns zeroed memory that starts on a cache line; the system commits it on first touch."""
    raw = np.zeros(num_bytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + num_bytes]


FLOAT_BYTES = 4


class Tape:
    """The buffers and operations recorded so far; `finish` with the logits makes the program."""

    def __init__(self, limits: ProgramLimits) -> None:
        self._limits = limits
        self._router_logits: list[Buffer] = []
        self._routes: list[Buffer] = []
        self._buffers: list[Buffer] = []
        self._operations: list[tuple[OpKind, Callable[[], Structure]]] = []
        self._alive: list[object] = []
        self._arena = np.zeros(0, np.uint8)
        self._incoming: Buffer | None = None

    def incoming(self, width: int, rows: Rows = Rows.TOKENS) -> Buffer:
        """Returns a buffer (rows, width) for an input of each step, such as hidden states."""
        self._incoming = self._buffer(width, rows)
        return self._incoming

    def finish(self, logits: Buffer, hidden: Buffer | None = None) -> Program:
        """Assigns memory to all buffers, and returns a program of the recorded operations.

        The memory of `logits` and `hidden` is not reused, so that both can be read after a step.
        """
        for buffer in filter(None, (logits, hidden)):
            buffer.kept = True
        self._arena = aligned_bytes(assign_offsets(self._buffers))
        program = Program(self._limits, self._arena, self._alive)
        for kind, params in self._operations:
            program.append(kind, params())
        program.seal_scratch()
        program.logits = self._view(logits)
        program.routes = [self._view(each).view(np.int32) for each in self._routes]
        program.router_logits = [self._view(each) for each in self._router_logits]
        if self._incoming is not None:
            program.incoming = self._view(self._incoming)
        if hidden is not None:
            program.hidden = self._view(hidden)
        return program

    def _view(self, buffer: Buffer) -> npt.NDArray[np.float32]:
        rows = self._arena[buffer.offset : buffer.offset + buffer.num_bytes]
        return rows.view(np.float32).reshape(-1, buffer.width)

    def _buffer(self, width: int, rows: Rows = Rows.TOKENS) -> Buffer:
        limits, now = self._limits, len(self._operations)
        most = {
            Rows.TOKENS: limits.max_tokens,
            Rows.OUTPUTS: limits.max_outputs,
            Rows.PREDICTED: limits.max_outputs,
        }
        buffer = Buffer(most[rows] * width * FLOAT_BYTES, width, rows, now, now)
        self._buffers.append(buffer)
        return buffer

    def _add(
        self, kind: OpKind, struct: type[Structure], *buffers: Buffer, **fields: Any
    ) -> Buffer:
        """Appends an operation with a struct of these fields; `buffers` are used beside them."""
        used = [*buffers, *(value for value in fields.values() if isinstance(value, Buffer))]
        for buffer in used:
            buffer.last = len(self._operations)
        self._operations.append((kind, lambda: struct(**self._values(fields))))
        return used[0]

    def _values(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._value(value) for name, value in fields.items()}

    def _value(self, value: Any) -> Any:
        if isinstance(value, Buffer):
            return self._at(value)
        if isinstance(value, np.ndarray):
            return self._data(value)
        return value() if isfunction(value) else value

    def _at(self, buffer: Buffer, offset: int = 0) -> int:
        return self._arena.ctypes.data + buffer.offset + offset

    def _data(self, array: np.ndarray | None) -> int | None:
        """Returns the array's address, None for None; the program keeps the array alive."""
        if array is None:
            return None
        self._alive.append(array)
        return int(array.ctypes.data)
