"""Starts of the kernels that treat every value by itself, or move whole rows."""

from typing import Final

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span

_THREADS: Final = 256


def add_scaled(a: Span | None, b: Span, out: Span, *, count: int, scale: float) -> Launch:
    """out = a + scale * b, `count` floats each; without an `a`, scale * b. May be in place."""
    arguments = (a, b, out, np.int32(count), np.float32(scale))
    writes = frozenset(i for i, span in enumerate((a, b, out)) if span == out)
    return Launch(Kernel("add_scaled", "add_scaled"), _blocks(count), _THREADS, arguments, writes)


def sigmoid(x: Span, *, count: int) -> Launch:
    """1 / (1 + e^-x) of `count` floats, in place."""
    return Launch(
        Kernel("sigmoid", "sigmoid"), _blocks(count), _THREADS, (x, np.int32(count)), frozenset({0})
    )


def soft_cap(x: Span, *, count: int, cap: float) -> Launch:
    """cap * tanh(x / cap) of `count` floats, in place."""
    arguments = (x, np.int32(count), np.float32(cap))
    return Launch(
        Kernel("soft_cap", "soft_cap"), _blocks(count), _THREADS, arguments, frozenset({0})
    )


def gather(x: Span, rows: Span, out: Span, *, outputs: int, width: int) -> Launch:
    """out (outputs, width) = the rows of x (any, width) that int32 `rows` (outputs,) names."""
    grid = (outputs, _blocks(width)[0], 1)
    return Launch(
        Kernel("gather", "gather"), grid, _THREADS, (x, rows, out, np.int32(width)), frozenset({2})
    )


def _blocks(count: int) -> tuple[int, int, int]:
    return (-(-count // _THREADS), 1, 1)
