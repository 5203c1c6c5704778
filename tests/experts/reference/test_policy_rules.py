"""The rules that slot policies keep, seen from outside, and slru against a naive model."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from route_traces import skewed_routes

from sharpi.experts.native.native_policy import NativePolicy
from sharpi.experts.policy_settings import Counts, PolicyKind, PolicySettings
from sharpi.experts.trace.trace import decoded_steps

pytestmark = pytest.mark.native
EXPERTS, K = 9, 3

tokens_of_one_layer = st.lists(
    st.lists(st.integers(0, EXPERTS - 1), min_size=1, max_size=K, unique=True), max_size=60
)


def one_layer(kind: PolicyKind, slots: int, **changes: object) -> PolicySettings:
    return replace(PolicySettings(kind, EXPERTS, K, (slots,)), **changes)  # type: ignore[arg-type]


class NaiveSlru:
    """A naive model: sets, explicit decay, and a clock for recency."""

    def __init__(self, slots: int) -> None:
        self.slots, self.clock = slots, 0
        self.probationary: set[int] = set()
        self.protected: set[int] = set()
        self.frequency, self.used = [0.0] * EXPERTS, [0] * EXPERTS

    def use(self, experts: list[int]) -> None:
        self.clock += 1
        self.frequency = [0.5 ** (1 / 16) * n for n in self.frequency]
        for e in experts:
            self.frequency[e] += 1
            self.used[e] = self.clock
        missed = [e for e in experts if e not in self.probationary | self.protected]
        for e in [e for e in experts if e in self.probationary]:
            self.promote(e)
        for e in missed:
            self.enter(e, set(experts))

    def promote(self, expert: int) -> None:
        self.probationary.remove(expert)
        others = self.protected.copy()
        self.protected.add(expert)
        if len(self.protected) > self.slots - max(1, self.slots // 4) and others:
            oldest = min(others, key=lambda e: (self.used[e], e))
            self.protected.remove(oldest)
            self.probationary.add(oldest)
            self.used[oldest] = self.clock

    def enter(self, expert: int, in_use: set[int]) -> None:
        if len(self.probationary | self.protected) == self.slots:
            idle = (self.probationary | self.protected) - in_use
            if not idle:
                return
            victim = min(idle, key=lambda e: (self.worth(e), self.used[e], e))
            self.probationary.discard(victim)
            self.protected.discard(victim)
        self.probationary.add(expert)

    def worth(self, expert: int) -> float:
        return round(self.frequency[expert] * (1.1 if expert in self.protected else 1), 5)


@given(st.integers(1, EXPERTS), st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_slru_agrees_with_a_naive_model(slots: int, seed: int) -> None:
    naive, native = NaiveSlru(slots), NativePolicy(one_layer(PolicyKind.SLRU, slots))
    for token in skewed_routes(60, 1, EXPERTS, K, seed=seed)[:, 0].tolist():
        naive.use(token)
        native.use(0, token)
        native.end_token()
        resident = np.flatnonzero(native.states().resident[0]).tolist()
        assert resident == sorted(naive.probationary | naive.protected)


@given(st.sampled_from(PolicyKind), st.integers(1, EXPERTS), tokens_of_one_layer)
@settings(max_examples=150, deadline=None)
def test_swaps_are_sound_and_never_evict_an_expert_in_use(
    kind: PolicyKind, slots: int, tokens: list[list[int]]
) -> None:
    policy = NativePolicy(one_layer(kind, slots, pinned=((1, 5),), load_budget=2.0))
    resident = {swap.expert for swap in policy.start()}
    for experts in tokens:
        hits = policy.all_counts()[0].hits
        expected = len(resident & set(experts))
        swaps = policy.use(0, experts)
        assert policy.all_counts()[0].hits - hits == expected
        assert not {swap.victim for swap in swaps} & set(experts)
        for swap in swaps + policy.end_token():
            assert swap.expert not in resident
            assert swap.victim == -1 or swap.victim in resident
            resident = (resident - {swap.victim}) | {swap.expert}
            assert len(resident) <= slots
        assert set(np.flatnonzero(policy.states().resident[0]).tolist()) == resident


@pytest.mark.parametrize("kind", [kind for kind in PolicyKind if kind is not PolicyKind.STATIC])
def test_pins_stay_and_take_half_of_the_slots_at_most(kind: PolicyKind) -> None:
    pinned = ((8, 2, 0, 5),)
    policy = NativePolicy(one_layer(kind, 4, pinned=pinned, load_budget=3.0))
    assert {swap.expert for swap in policy.start()} == {8, 2}
    for token in skewed_routes(300, 1, EXPERTS, K, seed=4)[:, 0]:
        policy.use(0, token)
        policy.end_token()
        assert policy.states().resident[0, 8]
        assert policy.states().resident[0, 2]


def test_pins_without_a_start_enter_when_used() -> None:
    policy = NativePolicy(one_layer(PolicyKind.SLRU, 2, pinned=((8,),), admission=True))
    for token in [[0, 1], [0, 1], [0], [8]]:
        policy.use(0, token)
        policy.end_token()
    assert policy.states().resident[0, 8]


def test_warm_pin_takes_the_most_used_and_remembers_the_rate_before() -> None:
    chosen = one_layer(PolicyKind.LRU, 4, warm_pin=2, warm_pin_after=12)
    policy = NativePolicy(chosen)
    for token in [[3, 6, 0], [3, 6, 1], [3, 6, 2]]:
        policy.use(0, token)
        policy.end_token()
    assert policy.before_pin is None
    policy.use(0, [4, 5, 7])
    swaps = policy.end_token()
    assert policy.before_pin == (12, 4)
    assert np.flatnonzero(policy.states().pinned[0]).tolist() == [3, 6]
    assert policy.states().resident[0, 3]
    assert policy.states().resident[0, 6]
    assert {swap.expert for swap in swaps} <= {3, 6}


def test_no_warm_pin_means_none() -> None:
    policy = NativePolicy(one_layer(PolicyKind.SLRU, 4, warm_pin=0, warm_pin_after=0))
    for token in skewed_routes(50, 1, EXPERTS, K)[:, 0]:
        policy.use(0, token)
        policy.end_token()
    assert policy.before_pin is None
    assert not policy.states().pinned.any()


def test_static_keeps_its_set_and_loads_nothing_else() -> None:
    policy = NativePolicy(one_layer(PolicyKind.STATIC, 3, pinned=((4, 1, 7, 2),)))
    assert [swap.expert for swap in policy.start()] == [1, 4, 7]
    assert policy.use(0, [0, 1, 2]) == []
    assert policy.end_token() == []
    assert policy.all_counts()[0] == Counts(accesses=3, hits=1, loads=3)


def test_admission_leaves_the_slot_to_the_expert_used_more() -> None:
    def loads(admission: bool) -> list[int]:
        policy = NativePolicy(one_layer(PolicyKind.SLRU, 2, admission=admission))
        for token in [[0, 1], [0, 1], [0, 1]]:
            policy.use(0, token)
            policy.end_token()
        return [swap.expert for swap in policy.use(0, [5])]

    assert loads(admission=True) == []
    assert loads(admission=False) == [5]


def test_learned_prefetch_loads_before_use_and_keeps_to_its_budget() -> None:
    routes = skewed_routes(3000, 6, 16, 2, seed=5)

    def replayed(settings: PolicySettings) -> list[Counts]:
        policy = NativePolicy(settings)
        policy.replay(decoded_steps(routes, np.array([len(routes)])))
        return [Counts(*column) for column in policy.all_counts()]

    kind = PolicyKind.LEARNED_PREFETCH
    counts = replayed(PolicySettings(kind, 16, 2, (4,) * 6, load_budget=1.0))
    without = replayed(PolicySettings(PolicyKind.LRU, 16, 2, (4,) * 6))
    loads = sum(count.early_loads for count in counts) / len(routes)
    assert 0 < loads < 1.1  # few, since they save little here
    assert sum(count.early_hits for count in counts) > 0.05 * loads * len(routes)
    # More hits than lru: what it loads early is worth a slot.
    assert sum(c.hits for c in counts) > sum(c.hits for c in without)


def test_a_batch_evicts_nothing_and_keeps_what_its_end_uses() -> None:
    policy = NativePolicy(one_layer(PolicyKind.SLRU, 3))
    batch = np.array([[0, 1, 2]] * 30 + [[3, 4, 5]] * 20)
    assert {swap.expert for swap in policy.use_batch(0, batch)} == {3, 4, 5}
    policy.end_token()
    assert policy.use_batch(0, batch[:10]) == []
    assert policy.all_counts()[0] == Counts(accesses=9, hits=0, loads=3)


def test_lfru_forgets_old_uses_as_vllm_does() -> None:
    busy_once = [[0]] * 40 + [[1], [2]] * 20  # expert 0 was used most, long ago
    policy = NativePolicy(one_layer(PolicyKind.LFRU, 3))
    for token in [*busy_once, [0], [1], [2], [3]]:
        swaps = policy.use(0, token)
        policy.end_token()
    policy.close()
    # after the last use of each: 0 is 3 tokens old, 1 is 2, 2 is 1
    decay = 0.95
    old = sum(decay**age for age in range(43, 83)) + decay**3
    ones = sum(decay**age for age in [2, *range(5, 45, 2)])
    assert old / 4 < ones / 3  # by the decayed counts, expert 0 goes
    assert 41 / 4 > 21 / 3  # by those of all time, it would stay
    assert swaps[0].victim == 0
