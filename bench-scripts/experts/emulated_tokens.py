"""Replays routes through a slot policy, and sums up emulated seconds per token.

Nothing is computed or read. A token waits for each missed expert. Experts that the policy
prefetches are read one after the other while layers compute, and a token waits for those that are
late. From these times, the engine's PolicyTrials decides whether the policy prefetches and learns.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from sharpi.experts.native.native_policy import NativePolicy
from sharpi.experts.policy_settings import PolicyKind, PolicySettings, Swap
from sharpi.experts.policy_trials import PolicyTrials


class Costs(Struct, frozen=True):
    """The costs of a token's parts on an emulated machine, in seconds."""

    layer: float  # computing a layer
    read: float  # reading one expert, over the bus or from the disk
    decisions: float = 0.0  # the decisions of a learned policy, per token
    prefetch_decisions: float = 0.0  # its further decisions while it prefetches, per token


class EmulatedTokens:
    """Emulates tokens with one policy; `seconds` lists the time of each token."""

    def __init__(self, settings: PolicySettings, costs: Costs) -> None:
        self.costs = costs
        is_default_in_ram = settings.kind is PolicyKind.LEARNED_PREFETCH
        self.trials = PolicyTrials(
            may_prefetch=settings.kind.prefetches, may_fall_back=is_default_in_ram
        )
        self._is_learned = settings.kind.is_learned
        self.seconds: list[float] = []
        self.waited, self.late, self.loads = 0.0, 0, 0  # seconds, experts, experts
        self._policy: NativePolicy | None = None
        self.open(settings)
        self._pending.clear()  # the first set is there before the first token

    def open(self, settings: PolicySettings) -> None:
        """Creates a policy with empty slots, and queues the reads of its first experts."""
        self.close()
        self._policy = NativePolicy(settings)
        self._resident: set[tuple[int, int]] = set()
        self._pending: dict[tuple[int, int], float] = {}  # seconds of reading left, in order
        self._apply(self._policy.start(), -1, ())

    def close(self) -> None:
        """Frees the native policy."""
        if self._policy is not None:
            self._policy.close()

    def run(self, routes: NDArray[np.integer]) -> None:
        """Replays the tokens of `routes` (tokens, layers, k)."""
        for token in routes.tolist():
            self.run_token(token)

    def run_token(self, routes: Sequence[Sequence[int]]) -> None:
        """Replays a token, and records its time."""
        self.seconds.append(self._token(routes))
        self.trials.record(self.seconds[-1])

    def _token(self, routes: Sequence[Sequence[int]]) -> float:
        assert self._policy is not None
        prefetches, learns = self.trials.prefetches_now, self.trials.learns_now
        self._policy.set_learning(learns)
        self._policy.set_prefetching(prefetches)
        seconds = self.costs.decisions * (learns and self._is_learned)
        seconds += self.costs.prefetch_decisions * prefetches
        for layer, route in enumerate(routes):
            seconds += self._wait(layer, route) + self.costs.layer
            self._apply(self._policy.use(layer, route), layer, route)
            self._read_for(self.costs.layer)
        self._apply(self._policy.end_token(), -1, ())
        return seconds

    def _wait(self, layer: int, route: Sequence[int]) -> float:
        """Returns the seconds until a route's experts are read, ahead of all queued reads."""
        keys = [(layer, expert) for expert in route]
        missed = sum(key not in self._resident for key in keys)
        late = [self._pending.pop(key) for key in keys if key in self._pending]
        self.late += len(late)
        self.loads += missed
        seconds = missed * self.costs.read + sum(late)
        self.waited += seconds
        return seconds

    def _apply(self, swaps: Iterable[Swap], layer: int, route: Sequence[int]) -> None:
        for swap in swaps:
            for gone in (swap.layer, swap.victim), (swap.layer, swap.expert):
                self._pending.pop(gone, None)
            self._resident.discard((swap.layer, swap.victim))
            self._resident.add((swap.layer, swap.expert))
            if swap.layer != layer or swap.expert not in route:
                self._pending[swap.layer, swap.expert] = self.costs.read

    def _read_for(self, seconds: float) -> None:
        """Advances the queued reads by `seconds`, in order."""
        while seconds > 0 and self._pending:
            key, left = next(iter(self._pending.items()))
            self._pending[key] = left - seconds
            seconds -= left
            if self._pending[key] <= 0:
                del self._pending[key]
