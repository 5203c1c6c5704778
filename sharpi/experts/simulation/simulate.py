"""Runs slot policies and predictors over a trace of routes, and counts their hits and loads.

Prompts in the trace are replayed, too, in the batches in which they ran. Their accesses count as in
the running engine: each distinct expert of a batch is one access.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from sharpi.errors import UsageError
from sharpi.experts.native.feed import NativePredictor
from sharpi.experts.native.native_policy import NativePolicy, native_trace, policy_library
from sharpi.experts.policy_settings import (
    POLICIES,
    PREDICTORS,
    Counts,
    PolicyKind,
    PolicySettings,
    counting,
    default_load_budget,
    policy_kind,
)
from sharpi.experts.trace.trace import Steps, Trace


def replay_optimum(steps: Steps, num_experts: int, slots: tuple[int, ...]) -> list[Counts]:
    """Returns each layer's counts if the experts that are used again soonest keep `slots`."""
    trace = native_trace(steps, num_experts)
    per_layer = np.array(slots, np.int32)
    counts = np.empty((len(slots), len(Counts._fields)), np.int64)
    status = policy_library().sharpi_optimum_replay(
        trace, per_layer.ctypes.data, counts.ctypes.data
    )
    if status < 0:
        raise MemoryError("no memory to replay the trace")
    return [Counts(*row) for row in counts.tolist()]


OPTIMUM = "optimum"
SIMULATED = (*POLICIES, OPTIMUM)


class Simulation(Struct, frozen=True):
    """The settings that all policies of a comparison share."""

    admission: bool = False
    load_budget: float | None = None  # expert loads per token; None uses the default
    # ids per layer of the static policy's set; empty means the lowest ids
    resident: tuple[tuple[int, ...], ...] = ()
    moving_slots: bool = False
    warm_pin: int = 0
    warm_pin_after: int = 0
    # static: the number of tokens after which the most used experts become the set; at first it has
    # the lowest ids. With None the set does not change.
    warm_up: int | None = None


class SimulationRow(Struct, frozen=True):
    """The results of one policy with `slots` slots per layer; counts are per decoded token."""

    policy: str
    slots: int
    admission: bool
    hit_rate: float  # 0 to 1
    loads_per_token: float
    early_loads_per_token: float
    early_hits_per_token: float
    reads_per_token: float  # experts to read from disk: all misses, and loads that were not misses
    # bytes of the loads; None if the trace lacks the size of an expert
    bytes_per_token: float | None
    microseconds_per_token: float
    # The hit rates before and after the most used experts were pinned; None if none was pinned.
    # Their mean, weighted by lookups, is `hit_rate`.
    hit_rate_before_pin: float | None = None
    hit_rate_after_pin: float | None = None
    lookups_before_pin: int | None = None


def simulate(trace: Trace, policy: str, slots: int, simulation: Simulation) -> SimulationRow:
    """Returns the results of a policy on the trace; raises UsageError for an unknown policy."""
    begin = time.perf_counter()
    counts, before_pin = _replayed(trace, policy, slots, simulation)
    seconds, tokens = time.perf_counter() - begin, trace.num_tokens
    per_layer = np.array(counts, np.int64)  # (layers, fields of Counts)
    total, loaded = Counts(*per_layer.sum(axis=0).tolist()), None
    if trace.expert_bytes is not None:
        loaded = float(per_layer[:, Counts._fields.index("loads")] @ trace.expert_bytes) / tokens
    return SimulationRow(
        policy=policy,
        slots=slots,
        admission=simulation.admission and policy == "slru",
        hit_rate=total.hits / total.accesses,
        loads_per_token=total.loads / tokens,
        early_loads_per_token=total.early_loads / tokens,
        early_hits_per_token=total.early_hits / tokens,
        reads_per_token=(total.accesses - total.hits + total.early_loads) / tokens,
        bytes_per_token=loaded,
        microseconds_per_token=1e6 * seconds / tokens,
        **_around_pin(total, before_pin),
    )


def _replayed(
    trace: Trace, policy: str, slots: int, simulation: Simulation
) -> tuple[list[Counts], tuple[int, int] | None]:
    """Returns each layer's counts, and the accesses and hits before a pin; None without one."""
    if policy == OPTIMUM:
        per_layer = (slots,) * trace.num_layers
        return replay_optimum(trace.steps, trace.num_experts, per_layer), None
    with NativePolicy(policy_settings(trace, policy, slots, simulation)) as native:
        native.replay(trace.steps)
        return native.all_counts(), native.before_pin


def policy_settings(
    trace: Trace, policy: str, slots: int, simulation: Simulation
) -> PolicySettings:
    """Returns the policy's settings for one replay, with `slots` slots in every layer."""
    kind = policy_kind(policy)
    budget = simulation.load_budget
    if budget is None:
        budget = default_load_budget(trace.num_layers, trace.experts_per_token)
    all_experts = (tuple(range(trace.num_experts)),) * trace.num_layers
    settings = PolicySettings(
        kind,
        trace.num_experts,
        trace.experts_per_token,
        (slots,) * trace.num_layers,
        pinned=(simulation.resident or all_experts) if kind is PolicyKind.STATIC else (),
        admission=simulation.admission,
        load_budget=budget,
        moving_slots=simulation.moving_slots,
        warm_pin=simulation.warm_pin,
        warm_pin_after=simulation.warm_pin_after,
    )
    counts_uses = kind is PolicyKind.STATIC and simulation.warm_up is not None
    return counting(settings, simulation.warm_up or 0) if counts_uses else settings


def _around_pin(total: Counts, before: tuple[int, int] | None) -> dict[str, Any]:
    """Returns a row's fields on both sides of the warm pin; empty without one."""
    if before is None:
        return {}
    accesses, hits = before
    later = total.accesses - accesses
    return {
        "hit_rate_before_pin": hits / accesses if accesses else None,
        "hit_rate_after_pin": (total.hits - hits) / later if later else None,
        "lookups_before_pin": accesses,
    }


class PredictorRow(Struct, frozen=True):
    """One predictor's results on a trace.

    In the recall, the experts of a text's first token count as not predicted.
    """

    predictor: str
    guesses: int  # experts predicted for each layer
    recall: float  # the share of the used experts that was predicted, 0 to 1
    precision: float  # the share of the predicted experts that was used, 0 to 1
    microseconds_per_token: float


def measure_predictors(trace: Trace) -> list[PredictorRow]:
    """Measures every predictor with budgets of `k` and `2 k` experts, for `k` experts per token."""
    k = trace.experts_per_token
    budgets = sorted({k, min(2 * k, trace.num_experts)})
    return [measure(trace, name, budget) for budget in budgets for name in PREDICTORS]


def measure(trace: Trace, name: str, budget: int) -> PredictorRow:
    """Measures one predictor that predicts `budget` experts before every layer of every token."""
    with NativePredictor(name, trace.num_layers, trace.num_experts) as predictor:
        begin = time.perf_counter()
        counts = predictor.replay(trace.steps, budget)
        seconds = time.perf_counter() - begin
    return PredictorRow(
        predictor=name,
        guesses=budget,
        recall=counts.right / counts.used,
        precision=counts.right / max(1, counts.predicted),
        microseconds_per_token=1e6 * seconds / trace.num_tokens,
    )


# For each flag of `sharpi simulate`: which policies use it, in words and as a condition.
_USERS: Mapping[str, tuple[str, Callable[[PolicyKind], bool]]] = {
    "--admission": ("slru", lambda kind: kind is PolicyKind.SLRU),
    "--load-budget": ("learned-prefetch", lambda kind: kind.prefetches),
    "--moving-slots": ("the learned policies", lambda kind: kind.is_learned),
    "--resident": ("static", lambda kind: kind is PolicyKind.STATIC),
    "--warmup-tokens": ("static", lambda kind: kind is PolicyKind.STATIC),
    "--warm-pin": ("all policies but static", lambda kind: kind is not PolicyKind.STATIC),
    "--warm-pin-after": ("all policies but static", lambda kind: kind is not PolicyKind.STATIC),
}


def refuse_idle(given: Sequence[str], policies: Sequence[str]) -> None:
    """Raises UsageError for the first given flag that has no effect on any of the policies."""
    kinds = [POLICIES[name] for name in policies if name in POLICIES]
    for flag in given:
        users, has_it = _USERS[flag]
        if not any(map(has_it, kinds)):
            raise UsageError(f"{flag} is for {users}, not for --policy {','.join(policies)}")
