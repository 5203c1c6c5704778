"""Launches the argmax kernel, which finds the largest logit."""

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span


def argmax(
    logits: Span, out: Span, *, rows: int, width: int, next_inputs: tuple[Span, Span] | None = None
) -> Launch:
    """Writes the id of the largest logit in each row of (rows, width) to out, int32 (rows,).

    Ties yield the lowest id. The id is -1 if a logit is NaN or the largest one is infinite.
    `next_inputs` are the int32 inputs of a step of one token: its token id and its position. The
    kernel updates them for the next step, with id 0 in place of -1.
    """
    return Launch(
        Kernel("argmax", "argmax"),
        grid=(rows, 1, 1),
        block=1024,
        arguments=(logits, out, *(next_inputs or (None, None)), np.int32(width)),
        writes=frozenset({1} if next_inputs is None else {1, 2, 3}),
    )
