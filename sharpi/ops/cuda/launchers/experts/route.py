"""Launches the kernel that chooses experts from router logits."""

import numpy as np

from sharpi.device.launch import Kernel, Launch, Span
from sharpi.ops.interface import Scoring


def route(
    logits: Span,
    bias: Span | None,
    ids: Span,
    weights: Span,
    *,
    tokens: int,
    experts: int,
    used: int,
    scoring: Scoring,
    normalise: bool,
    scale: float,
    num_groups: int,
    groups_used: int,
    arrived: Span | None = None,
) -> Launch:
    """Chooses ids int32 and weights (T, used), best first, from logits (T, experts).

    There are at most 512 experts, of which at most 32 are used. `bias` (experts,) is added for the
    choice only. The rules are those of `reference.choose_experts`; ids are distinct even where
    logits are NaN. `arrived`, an int64, gets the time at which the first token has its experts.
    """
    return Launch(
        Kernel("route", "route"),
        grid=(tokens, 1, 1),
        block=32,
        arguments=(
            *(logits, ids, weights, arrived),
            *(bias, np.int32(experts), np.int32(used), np.int32(scoring)),
            *(np.int32(normalise), np.float32(scale)),
            *(np.int32(num_groups), np.int32(groups_used)),
        ),
        writes=frozenset({1, 2, 3}),
    )
