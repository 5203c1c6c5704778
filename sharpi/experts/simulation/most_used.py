"""Replays the fixed set of the most used experts, which is known only once it was counted."""

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from sharpi.experts.native.native_policy import NativePolicy
from sharpi.experts.policy_settings import Counts, PolicySettings
from sharpi.experts.static_set import most_used
from sharpi.experts.trace.trace_steps import Steps


def replay_most_used(steps: Steps, settings: PolicySettings, warm_up: int) -> list[Counts]:
    """Returns each layer's counts: the first experts are resident while `warm_up` tokens count.

    After those, the experts that they used most take the slots, for all tokens that follow; so no
    token has a say in the set that it is scored on.
    """
    counting, scored = split(steps, warm_up)
    first = _replay(counting, settings)
    if not len(scored.sizes):
        return first
    ids = most_used(_uses(counting.routes, settings.num_experts))
    kept = [
        len(set(range(slots)) & set(chosen[:slots]))
        for slots, chosen in zip(settings.slots, ids, strict=True)
    ]
    second = _replay(scored, replace(settings, pinned=ids))
    return [
        Counts(*np.add(a, b).tolist())._replace(loads=a.loads + b.loads - stays)
        for a, b, stays in zip(first, second, kept, strict=True)
    ]


def split(steps: Steps, tokens: int) -> tuple[Steps, Steps]:
    """Returns the steps until so many tokens are reached, and the others."""
    ends = np.cumsum(steps.sizes)
    place = int(np.searchsorted(ends, tokens)) + 1
    cut = int(ends[place - 1]) if place <= len(ends) else len(steps.routes)
    return (
        Steps(steps.routes[:cut], steps.sizes[:place], steps.starts[:place]),
        Steps(steps.routes[cut:], steps.sizes[place:], steps.starts[place:]),
    )


def _uses(routes: NDArray[np.int32], num_experts: int) -> NDArray[np.intp]:
    layers = [np.bincount(ids.ravel(), minlength=num_experts) for ids in routes.swapaxes(0, 1)]
    return np.stack(layers)


def _replay(steps: Steps, settings: PolicySettings) -> list[Counts]:
    policy = NativePolicy(settings)
    try:
        policy.replay(steps)
        return policy.all_counts()
    finally:
        policy.close()
