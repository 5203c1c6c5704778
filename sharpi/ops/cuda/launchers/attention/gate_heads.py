"""Launches the kernel that applies a gate to each head of attention's result."""

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span
from sharpi.ops.interface import HeadGate

_THREADS = 256


def gate_heads(
    x: Span, gate: Span, *, tokens: int, width: int, num_gates: int, activation: HeadGate
) -> Launch:
    """Multiplies x (T, width) in place by act(gate) (T, num_gates).

    A row of x has `num_gates` parts of equal width, each with one gate.
    """
    softplus = activation is HeadGate.SOFTPLUS
    return Launch(
        Kernel("gate_heads", "gate_heads"),
        grid=(-(-width // _THREADS), tokens, 1),
        block=_THREADS,
        arguments=(x, gate, np.int32(width), np.int32(width // num_gates), np.int32(softplus)),
        writes=frozenset({0}),
    )
