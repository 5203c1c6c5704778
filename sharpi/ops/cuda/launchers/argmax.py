"""Launches the argmax kernel, which finds the largest logit."""

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span


def argmax(logits: Span, out: Span, *, rows: int, width: int) -> Launch:
    """Writes the id of the largest logit in each row of (rows, width) to out, int32 (rows,).

    Ties go to the lowest id. The id is -1 where a logit is NaN or the largest is infinite.
    """
    return Launch(
        Kernel("argmax", "argmax"),
        grid=(rows, 1, 1),
        block=1024,
        arguments=(logits, out, np.int32(width)),
        writes=frozenset({1}),
    )
