"""Replays a recorded trace through the expert store, with real reads, and pauses for computing.

The order of calls is that of expert_feed.cpp without a predictor, so that only the policy
prefetches experts.
"""

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sharpi.experts.native.native_policy import NativePolicy
from sharpi.experts.native.store import ExpertStore, StoreSettings
from sharpi.experts.native.store_counts import StoreCounts
from sharpi.experts.native.store_layout import StoreLayout
from sharpi.experts.policy_settings import Counts, PolicySettings
from sharpi.experts.trace.trace import Trace
from sharpi.experts.trace.trace_steps import Steps

_TOKENS = 2  # staging buffers and prefetch queue fit the experts of a layer for two tokens


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of the pauses that replace computing."""

    layer: float  # of one layer
    output: float  # after the last layer

    def token_seconds(self, num_layers: int) -> float:
        """Returns the seconds of a token that waits for no expert."""
        return num_layers * self.layer + self.output


@dataclass(frozen=True, slots=True)
class Replayed:
    """The counts of store and policy by layer, and the seconds of all tokens."""

    store: tuple[StoreCounts, ...]
    policy: tuple[Counts, ...]
    num_tokens: int
    seconds: float


def replay(trace: Trace, settings: PolicySettings, layout: StoreLayout, pace: Pace) -> Replayed:
    """Replays every step of a trace, starting with empty slots.

    Raises ModelFileError if a read fails, and MemoryError if the slots do not fit.
    """
    policy = NativePolicy(settings)
    try:
        store = ExpertStore(layout, _store_settings(settings, layout), policy)
        try:
            seconds = _run(trace.steps, store, pace)
            counts = tuple(store.counts()), tuple(policy.all_counts())
            return Replayed(*counts, trace.num_tokens, seconds)
        finally:
            store.close()
    finally:
        policy.close()


def _store_settings(settings: PolicySettings, layout: StoreLayout) -> StoreSettings:
    """Returns store settings with buffers as large as the engine's."""
    staging = _TOKENS * settings.experts_per_token
    return StoreSettings(settings.slots, staging, staging * layout.largest_slot)


def _run(steps: Steps, store: ExpertStore, pace: Pace) -> float:
    store.start()
    begin = time.perf_counter()
    first = 0
    for size, starts in zip(steps.sizes.tolist(), steps.starts.tolist(), strict=True):
        if starts:
            store.reset_sequence()
        _run_step(store, steps.routes[first : first + size], pace)
        first += size
    return time.perf_counter() - begin


def _run_step(store: ExpertStore, routes: NDArray[np.int32], pace: Pace) -> None:
    """Replays one step with `routes` (tokens, layers, k).

    A step of several tokens releases each expert at once, since more experts may miss than there
    are buffers.
    """
    for layer in range(routes.shape[1]):
        in_layer = routes[:, layer]  # (tokens, k)
        store.acquire(layer, in_layer)
        for expert in np.unique(in_layer).tolist():
            store.wait(layer, expert)
            if len(routes) > 1:
                store.release(layer, expert)
        time.sleep(pace.layer)
        store.release(layer)
    store.end_token()
    time.sleep(pace.output)
