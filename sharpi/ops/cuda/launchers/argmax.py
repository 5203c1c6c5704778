"""Starts of the choice of the largest logit."""

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span


def argmax(logits: Span, out: Span, *, rows: int, width: int) -> Launch:
    """out int32 (rows,): where each row of logits (rows, width) is largest.

    The lowest id among equals; -1 where one is NaN or the largest infinite.
    """
    return Launch(
        Kernel("argmax", "argmax"),
        grid=(rows, 1, 1),
        block=1024,
        arguments=(logits, out, np.int32(width)),
        writes=frozenset({1}),
    )
