"""Tape: the buffers and operations of a recording.

Buffers get their addresses only when the recording ends. So each operation's parameters are a
closure, which is called then.
"""

from collections.abc import Callable, Sequence
from ctypes import Structure

import numpy as np

from sharpi.ops.cpu.abi import OpKind, Rows
from sharpi.ops.cpu.buffers import Buffer, aligned_bytes, assign_offsets
from sharpi.ops.cpu.program import ArenaSlice, Program, ProgramLimits

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
        program.seal(
            logits=_arena_slice(logits),
            routes=[_arena_slice(each) for each in self._routes],
            router_logits=[_arena_slice(each) for each in self._router_logits],
            incoming=_arena_slice(self._incoming) if self._incoming else None,
            hidden=_arena_slice(hidden) if hidden else None,
        )
        return program

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
        self, kind: OpKind, buffers: Sequence[Buffer], params: Callable[[], Structure]
    ) -> Buffer:
        """Appends an operation that uses these buffers; returns the first of them."""
        for buffer in buffers:
            buffer.last = len(self._operations)
        self._operations.append((kind, params))
        return buffers[0]

    def _at(self, buffer: Buffer | None, offset: int = 0) -> int | None:
        return None if buffer is None else self._arena.ctypes.data + buffer.offset + offset

    def _data(self, array: np.ndarray | None) -> int | None:
        """Returns the array's address, None for None; the program keeps the array alive."""
        if array is None:
            return None
        self._alive.append(array)
        return int(array.ctypes.data)


def _arena_slice(buffer: Buffer) -> ArenaSlice:
    return ArenaSlice(buffer.offset, buffer.width, buffer.num_bytes // (buffer.width * FLOAT_BYTES))
