"""Replays routes through a slot policy, and sums up emulated seconds per token.

Nothing is computed or read. A token waits for each missed expert. Experts that the policy
prefetches are read one after the other while layers compute, and a token waits for those that are
late. From these times, the engine's PolicyTrials decides whether the policy prefetches and learns.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from sharpi.experts.file_trial import ExpertSource, FileTrial, WindowCounts
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


_FILLED = 0.8  # of the page cache
_FAULT_COST = 2.0  # reads: one thread waits, and what is read ahead is not all used


class EmulatedPages:
    """An emulated page cache of experts, empty at first."""

    def __init__(self, settings: PolicySettings, costs: Costs) -> None:
        self._room, self._costs = int(_FILLED * sum(settings.slots)), costs
        self._present: OrderedDict[tuple[int, int], None] = OrderedDict()

    def token(self, routes: Sequence[Sequence[int]]) -> tuple[float, int]:
        """Replays a token; returns its seconds and its number of experts not in the page cache."""
        keys = [(layer, expert) for layer, route in enumerate(routes) for expert in route]
        faults = 0
        for key in keys:
            faults += key not in self._present
            self._present[key] = None
            self._present.move_to_end(key)
            if len(self._present) > self._room:
                self._present.popitem(last=False)
        return len(routes) * self._costs.layer + faults * _FAULT_COST * self._costs.read, faults


class EmulatedChoice(EmulatedTokens):
    """Replays tokens with slots or with the mapped file, as FileTrial decides.

    `left`: the numbers of the tokens at which slots were dropped for the file. `returned`: the
    numbers of those at which slots replaced the file again.
    """

    def __init__(self, settings: PolicySettings, costs: Costs) -> None:
        super().__init__(settings, costs)
        shape = len(settings.slots), settings.num_experts
        self.file_trial = FileTrial(np.ones(shape[0], np.int64), self)
        self.left: list[int] = []
        self.returned: list[int] = []
        self._settings = settings
        self._pages = EmulatedPages(settings, costs)
        self._uses: NDArray[np.int64] = np.zeros(shape, np.int64)
        self._layers = np.arange(shape[0])[:, np.newaxis]
        self.begin_window()

    def run(self, routes: NDArray[np.integer]) -> None:
        """Replays the tokens of `routes` (tokens, layers, k)."""
        for token in routes.tolist():
            if self.file_trial.choice is ExpertSource.FILE:
                self._in_file(token)
            else:
                self._with_slots(token)

    def _with_slots(self, token: Sequence[Sequence[int]]) -> None:
        is_usual = self.trials.is_usual
        self._uses[self._layers, token] += 1
        self.run_token(token)
        self.file_trial.record(self.seconds[-1], is_usual=is_usual)
        if self.file_trial.choice is ExpertSource.FILE:
            self.left.append(len(self.seconds))
            self._pages = EmulatedPages(self._settings, self.costs)

    def _in_file(self, token: Sequence[Sequence[int]]) -> None:
        seconds, faults = self._pages.token(token)
        self.seconds.append(seconds)
        self.file_trial.record(seconds, faults=faults)
        if self.file_trial.choice is ExpertSource.SLOTS:
            self.returned.append(len(self.seconds))
            order = np.argsort(-self._uses, axis=1, kind="stable").tolist()
            self.open(replace(self._settings, warm=tuple(map(tuple, order))))

    def begin_window(self) -> None:
        """Notes the counts at the start of a window."""
        self._before, self._uses_before = self._waits, self._uses.copy()

    def window(self) -> tuple[WindowCounts, int]:
        """Returns the counts since then, and the room of the page cache without slots."""
        uses = self._uses.copy()
        counts = WindowCounts.between(self._before, self._waits, self._uses_before, uses)
        return counts, sum(self._settings.slots)

    @property
    def _waits(self) -> tuple[float, int, int]:
        return self.waited, self.late, self.loads


KINDS = ("uniform", "skewed", "uneven")
_SKEW = 0.7  # an expert's probability falls with its rank to this power
# The share of a layer's experts that uneven routes use; the first layer uses all.
_LEAST_USED, _MOST_USED = 0.33, 0.63
_REPEAT = 2.5  # added to the log-odds of the experts of the previous token


def make_routes(
    kind: str, tokens: int, layers: int, experts: int, k: int, seed: int = 7
) -> NDArray[np.int32]:
    """Returns routes (tokens, layers, k) of one of KINDS, with distinct experts, best first."""
    random = np.random.default_rng(seed)
    is_skewed = kind == "skewed"
    ranks = np.stack([random.permutation(experts) for _ in range(layers)])
    popular = -_SKEW * np.log(1.0 + ranks) * is_skewed
    if kind == "uneven":
        popular[ranks >= _used(layers, experts, random)[:, None]] = -np.inf
    routes = np.empty((tokens, layers, k), np.int32)
    repeated = np.zeros((layers, experts))
    for token in range(tokens):
        # The largest of log-odds plus Gumbel noise are a draw without replacement.
        scores = popular + repeated + random.gumbel(size=(layers, experts))
        routes[token] = np.argsort(-scores, axis=1)[:, :k]
        repeated[:] = 0
        np.put_along_axis(repeated, routes[token], _REPEAT * is_skewed, axis=1)
    return routes


def _used(layers: int, experts: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Returns the number of experts that each layer uses in uneven routes, (layers,)."""
    shares = random.permutation(np.linspace(_LEAST_USED, _MOST_USED, layers - 1))
    return np.concatenate([[experts], (shares * experts).astype(np.int64)])
