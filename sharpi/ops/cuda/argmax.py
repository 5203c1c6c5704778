"""Starts of the choice of the largest logit."""

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span


def argmax(logits: Span, out: Span, *, rows: int, width: int) -> Launch:
    """out int32 (rows,): where each row of logits (rows, width) is largest.

    The lowest id among equals; NaN never wins, and a row of nothing else gives 0.
    """
    return Launch(
        Kernel("argmax", "argmax"),
        grid=(rows, 1, 1),
        block=1024,
        arguments=(logits, out, np.int32(width)),
        writes=frozenset({1}),
    )
