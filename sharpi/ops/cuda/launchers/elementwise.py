"""Launches the elementwise kernels, and the kernel that gathers rows."""

from typing import Final

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span

_THREADS: Final = 256


def add_scaled(a: Span | None, b: Span, out: Span, *, count: int, scale: float) -> Launch:
    """Computes out = a + scale * b of `count` floats; out may be a or b.

    Without `a`, out = scale * b.
    """
    arguments = (a, b, out, np.int32(count), np.float32(scale))
    writes = frozenset(i for i, span in enumerate((a, b, out)) if span == out)
    return Launch(Kernel("add_scaled", "add_scaled"), _blocks(count), _THREADS, arguments, writes)


def sigmoid(x: Span, *, count: int) -> Launch:
    """Computes 1 / (1 + e^-x) of `count` floats, in place."""
    return Launch(
        Kernel("sigmoid", "sigmoid"), _blocks(count), _THREADS, (x, np.int32(count)), frozenset({0})
    )


def soft_cap(x: Span, *, count: int, cap: float) -> Launch:
    """Computes cap * tanh(x / cap) of `count` floats, in place."""
    arguments = (x, np.int32(count), np.float32(cap))
    return Launch(
        Kernel("soft_cap", "soft_cap"), _blocks(count), _THREADS, arguments, frozenset({0})
    )


def gather(x: Span, rows: Span, out: Span, *, outputs: int, width: int) -> Launch:
    """Copies the rows of x (any, width) with the indices `rows` int32 (outputs,) to out."""
    grid = (outputs, _blocks(width)[0], 1)
    return Launch(
        Kernel("gather", "gather"), grid, _THREADS, (x, rows, out, np.int32(width)), frozenset({2})
    )


def _blocks(count: int) -> tuple[int, int, int]:
    return (-(-count // _THREADS), 1, 1)
