"""Launches the argmax kernel, which finds the largest logit."""

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span


def argmax(
    logits: Span, out: Span, *, rows: int, width: int, following: tuple[Span, Span] | None = None
) -> Launch:
    """Writes the id of the largest logit in each row of (rows, width) to out, int32 (rows,).

    Ties go to the lowest id. The id is -1 where a logit is NaN or the largest is infinite.
    `following` are the id and the position, both int32, that a step of one token reads. They are
    updated for the step after it, with id 0 in place of -1.
    """
    return Launch(
        Kernel("argmax", "argmax"),
        grid=(rows, 1, 1),
        block=1024,
        arguments=(logits, out, *(following or (None, None)), np.int32(width)),
        writes=frozenset({1} if following is None else {1, 2, 3}),
    )
