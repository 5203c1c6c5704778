"""The native policies decide what the reference decides, swap by swap."""

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray
from reference_policy import SlotPolicy
from reference_policy_make import make_policy
from route_traces import skewed_routes

from sharpi.experts.native.native_policy import NativePolicy, policy_library
from sharpi.experts.policy_settings import PolicyKind, PolicySettings
from sharpi.experts.trace.trace import decoded_steps

pytestmark = pytest.mark.native
LAYERS, EXPERTS, K = 5, 16, 3


def settings(kind: PolicyKind, **changes: object) -> PolicySettings:
    pinned = tuple((layer, 7, 3) for layer in range(LAYERS)) if kind is PolicyKind.STATIC else ()
    plain = PolicySettings(kind, EXPERTS, K, (4, 1, 6, 16, 5), pinned=pinned, load_budget=2)
    return replace(plain, **changes)  # type: ignore[arg-type]


def assert_same_state(native: NativePolicy, reference: SlotPolicy) -> None:
    states = native.states()
    for layer, slots in enumerate(reference.layers):
        np.testing.assert_array_equal(states.resident[layer], slots.resident)
        np.testing.assert_array_equal(states.pinned[layer], slots.pinned)
        np.testing.assert_array_equal(states.accesses[layer], slots.access_count)
        assert native.all_counts()[layer] == reference.counts(layer)


def agree(
    native: NativePolicy, reference: SlotPolicy, layers: NDArray[np.int32], token: int
) -> None:
    """Feeds both a token's routes: they swap the same experts, and the same after it."""
    for layer, route in enumerate(layers.tolist()):
        assert native.use(layer, route) == reference.use(layer, route), (token, layer)
    assert native.end_token() == reference.end_token(), token


def run_both(chosen: PolicySettings, routes: NDArray[np.int32]) -> SlotPolicy:
    """Feeds both the same tokens, a new text now and then; every swap has to agree."""
    native, reference = NativePolicy(chosen), make_policy(chosen)
    assert native.start() == reference.start()
    for token, layers in enumerate(routes):
        if token % 201 == 200:
            native.reset_sequence()
            reference.reset_sequence()
        agree(native, reference, layers, token)
    assert_same_state(native, reference)
    native.close()
    return reference


@pytest.mark.slow
@pytest.mark.parametrize("kind", PolicyKind)
def test_many_tokens(kind: PolicyKind) -> None:
    reference = run_both(settings(kind), skewed_routes(260, LAYERS, EXPERTS, K))
    hits = [reference.counts(layer).hits for layer in range(LAYERS)]
    assert min(hits) > 0 or kind is PolicyKind.STATIC


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"admission": True},
        {"pinned": tuple((2, 9, 9, 4, 11) for _ in range(LAYERS))},
        {"warm_pin": 2, "warm_pin_after": 900},
        {"warm": tuple((8, 1, 8, 15, 0, 3, 4, 5, 6, 7) for _ in range(LAYERS))},
        {"warm_pin": 50, "warm_pin_after": 0, "pinned": ((1,),) * LAYERS},
    ],
)
@pytest.mark.parametrize("kind", [PolicyKind.SLRU, PolicyKind.LEARNED_PREFETCH])
def test_admission_and_pins(kind: PolicyKind, changes: dict[str, object]) -> None:
    run_both(settings(kind, **changes), skewed_routes(130, LAYERS, EXPERTS, K, seed=1))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PolicyKind.LEARNED_KEEP, PolicyKind.LEARNED_PREFETCH])
def test_moving_slots(kind: PolicyKind) -> None:
    chosen = settings(kind, slots=(5, 5, 7, 5, 5), moving_slots=True)
    routes = skewed_routes(600, LAYERS, EXPERTS, K, seed=6)
    routes[:, 3] = routes[0, 3]  # a layer that needs no slot more
    reference = run_both(chosen, routes)
    moved = [slots.num_slots for slots in reference.layers]
    assert sum(moved) == 27
    assert moved != [5, 5, 7, 5, 5]
    assert moved[3] <= 5
    assert all(slots.resident.sum() <= slots.num_slots for slots in reference.layers)


@pytest.mark.slow
@pytest.mark.parametrize("kind", PolicyKind)
def test_slots_that_shrink_and_grow(kind: PolicyKind) -> None:
    chosen = settings(kind)
    native, reference = NativePolicy(chosen), make_policy(chosen)
    sizes = np.random.default_rng(8)
    for token, layers in enumerate(skewed_routes(160, LAYERS, EXPERTS, K)):
        agree(native, reference, layers, token)
        if token % 8 == 7:
            layer, num_slots = int(sizes.integers(LAYERS)), int(sizes.integers(EXPERTS))
            assert native.resize(layer, num_slots) == reference.resize(layer, num_slots), token
            assert native.states().resident[layer].sum() <= num_slots
    assert_same_state(native, reference)
    native.close()


@pytest.mark.slow
def test_prefetching_switched_off_and_on() -> None:
    chosen = settings(PolicyKind.LEARNED_PREFETCH)
    native, reference = NativePolicy(chosen), make_policy(chosen)
    early = list[int]()
    for token, layers in enumerate(skewed_routes(150, LAYERS, EXPERTS, K)):
        if token % 50 == 0:
            native.set_prefetching(token != 50)
            reference.set_prefetching(token != 50)
            early.append(sum(counts.early_loads for counts in native.all_counts()))
        agree(native, reference, layers, token)
    assert_same_state(native, reference)
    assert 0 == early[0] < early[1] == early[2]
    assert sum(counts.early_loads for counts in native.all_counts()) > early[2]
    native.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PolicyKind.LEARNED_KEEP, PolicyKind.LEARNED_PREFETCH])
def test_learning_switched_off_and_on(kind: PolicyKind) -> None:
    chosen = settings(kind)
    native, reference = NativePolicy(chosen), make_policy(chosen)
    for token, layers in enumerate(skewed_routes(160, LAYERS, EXPERTS, K)):
        if token % 40 == 0:
            native.set_learning(token % 80 == 0)
            reference.set_learning(token % 80 == 0)
        agree(native, reference, layers, token)
    assert_same_state(native, reference)
    native.close()


@pytest.mark.parametrize("kind", [PolicyKind.LEARNED_KEEP, PolicyKind.LEARNED_PREFETCH])
def test_without_learning_it_decides_as_lru(kind: PolicyKind) -> None:
    learned, lru = NativePolicy(settings(kind)), NativePolicy(settings(PolicyKind.LRU))
    learned.set_learning(False)
    for layers in skewed_routes(300, LAYERS, EXPERTS, K, seed=3):
        for layer, route in enumerate(layers.tolist()):
            assert learned.use(layer, route) == lru.use(layer, route)
        assert learned.end_token() == lru.end_token()
    learned.close()
    lru.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", PolicyKind)
def test_batches_between_tokens(kind: PolicyKind) -> None:
    chosen = settings(kind)
    native, reference = NativePolicy(chosen), make_policy(chosen)
    routes = skewed_routes(320, LAYERS, EXPERTS, K, seed=2)
    for begin, end in [(0, 70), (70, 100), (100, 101), (101, 103), (103, 300)]:
        for layer in range(LAYERS):
            batch = routes[begin:end, layer]
            assert native.use_batch(layer, batch) == reference.use_batch(layer, batch)
        assert native.end_token() == reference.end_token()
        for token in range(300, 320):
            agree(native, reference, routes[token], token)
    assert_same_state(native, reference)


@pytest.mark.slow
@pytest.mark.parametrize("kind", PolicyKind)
def test_models_with_layers_without_experts(kind: PolicyKind) -> None:
    chosen = settings(kind, slots=(0, 5, 0, 4, 0))
    native, reference = NativePolicy(chosen), make_policy(chosen)
    for token, layers in enumerate(skewed_routes(120, LAYERS, EXPERTS, K, seed=7)):
        for layer in (1, 3):
            if token % 50 == 0:
                batch = layers[None, layer].repeat(2, 0)
                assert native.use_batch(layer, batch) == reference.use_batch(layer, batch)
            else:
                route = layers[layer].tolist()
                assert native.use(layer, route) == reference.use(layer, route), (token, layer)
        assert native.end_token() == reference.end_token(), token
    assert_same_state(native, reference)
    assert sum(native.all_counts()[layer].loads for layer in (0, 2, 4)) == 0


@pytest.mark.slow
def test_replay_is_the_calls_one_by_one() -> None:
    chosen = settings(PolicyKind.LEARNED_PREFETCH)
    routes = skewed_routes(120, LAYERS, EXPERTS, K, seed=3)
    native, reference = NativePolicy(chosen), make_policy(chosen)
    swaps = len(reference.start())
    for token, layers in enumerate(routes):
        if token in (0, 80):
            reference.reset_sequence()
        swaps += sum(
            len(reference.use(layer, route)) for layer, route in enumerate(layers.tolist())
        )
        swaps += len(reference.end_token())
    assert native.replay(decoded_steps(routes, np.array([80, 40]))) == swaps
    assert_same_state(native, reference)


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 1, 50, 6400])
def test_a_fixed_set_that_counts_uses(after: int) -> None:
    """The set fills all slots at the start, and later follows the most used experts."""
    first = (tuple(range(EXPERTS)),) * LAYERS
    chosen = settings(
        PolicyKind.STATIC, pinned=(), warm=first, warm_pin=EXPERTS, warm_pin_after=after
    )
    routes = skewed_routes(700, LAYERS, EXPERTS, K, seed=3)
    reference = run_both(chosen, routes)
    for slots in reference.layers:
        assert slots.resident.sum() == slots.num_slots
        np.testing.assert_array_equal(slots.resident, slots.pinned)
    hits = sum(reference.counts(layer).hits for layer in range(LAYERS))
    still = settings(PolicyKind.STATIC, pinned=first)
    if after == 6400:
        as_it_began = run_both(still, routes)
        assert hits > 1.1 * sum(as_it_began.counts(layer).hits for layer in range(LAYERS))


@pytest.mark.slow
@pytest.mark.parametrize("kind", PolicyKind)
def test_slots_exchanged_with_another_tier(kind: PolicyKind) -> None:
    """After each token, one expert of each layer gives its slot to another one."""
    native, reference = NativePolicy(settings(kind)), make_policy(settings(kind))
    assert native.start() == reference.start()
    random, exchange = np.random.default_rng(6), policy_library().sharpi_policy_exchange
    num_done = 0
    for token, layers in enumerate(skewed_routes(100, LAYERS, EXPERTS, K)):
        agree(native, reference, layers, token)
        for layer in range(LAYERS):
            leaves, enters = random.choice(EXPERTS, 2, replace=False).tolist()
            done = bool(exchange(native.handle, layer, leaves, enters))
            assert done == reference.exchange(layer, leaves, enters)
            num_done += done
    assert_same_state(native, reference)
    native.close()
    assert num_done > 50 or kind is PolicyKind.STATIC


@pytest.mark.parametrize("kind", [PolicyKind.LEARNED_KEEP, PolicyKind.LEARNED_PREFETCH])
def test_some_layers_decide_as_a_model_of_these_alone(kind: PolicyKind) -> None:
    part = NativePolicy(settings(kind, slots=(0, 4, 5, 4, 0)))
    whole = NativePolicy(replace(settings(kind), slots=(4, 5, 4)))
    for layers in skewed_routes(400, 3, EXPERTS, K, seed=4):
        for layer, route in enumerate(layers.tolist()):
            swaps = part.use(layer + 1, route)
            assert [swap._replace(layer=swap.layer - 1) for swap in swaps] == whole.use(
                layer, route
            )
        swaps = part.end_token()
        assert [swap._replace(layer=swap.layer - 1) for swap in swaps] == whole.end_token()
    assert part.all_counts()[1:4] == whole.all_counts()
    part.close()
    whole.close()
