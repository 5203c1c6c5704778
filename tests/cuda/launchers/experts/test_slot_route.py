"""A router's product that chooses experts and decides about slots: the bits of three launches."""

from itertools import product

import numpy as np
import pytest
from device_arrays import upload
from routed_slots import RoutedSlots, written

from sharpi.device.device import Device
from sharpi.experts.policy_settings import PolicyKind
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.expert_slots.slot_state import route_time
from sharpi.ops.cuda.expert_slots.slot_tables import DEVICE_KINDS
from sharpi.ops.cuda.launchers.experts.slot_policy import (
    KernelMissMode,
    Outcome,
    Phase,
    PolicyRules,
)
from sharpi.ops.cuda.launchers.matvec import with_route
from sharpi.ops.cuda.launchers.slot_route import with_slots

KINDS = sorted(map(PolicyKind, DEVICE_KINDS))
WAYS = tuple(product(KernelMissMode, Phase))
EXPERTS, USED, FULL = 24, 3, 1  # FULL: a layer with slots for all, which never loads any


def rules_of(kind: PolicyKind, experts: int = EXPERTS, used: int = USED) -> PolicyRules:
    return PolicyRules(kind, 3, experts, used, admission=kind is PolicyKind.SLRU)


def run(some: RoutedSlots, tokens: int) -> set[Outcome]:
    """Compares the launches of some tokens; returns the places that experts were read from.

    The ways to serve misses take turns. Every other token finds experts that were prefetched.
    """
    seen: set[Outcome] = set()
    for token, layer in product(range(tokens), some.world.layers):
        if token % 2 and layer > FULL:
            some.world.prefetch(layer, some.route(), after=FULL, budget=2)
        some.set_token(token, layer)
        way = WAYS[(2 * token + layer) % len(WAYS)]
        for wanted, found in zip(*some.use_twice(layer, *way), strict=True):
            np.testing.assert_array_equal(found, wanted)
        seen |= some.copy_listed(layer, *way)
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_policies_and_ways_to_serve_misses(device: Device, kind: PolicyKind) -> None:
    seen = run(RoutedSlots(device, rules_of(kind), (8, EXPERTS, 5)), 6)
    assert seen >= {Outcome.HIT, Outcome.LOADED} or kind is PolicyKind.STATIC
    if kind is PolicyKind.STATIC:  # misses get no slots, and are served in every way
        assert seen == {*Outcome} - {Outcome.LOADED}


@pytest.mark.parametrize("block", [32, 256])
@pytest.mark.parametrize("kind", [PolicyKind.SLRU, PolicyKind.LEARNED_KEEP])
def test_blocks_of_any_size(device: Device, kind: PolicyKind, block: int) -> None:
    some = RoutedSlots(device, rules_of(kind), (8, EXPERTS, 5), block=block)
    assert some.folded(some.launches(0)).block == block
    run(some, 3)


@pytest.mark.parametrize("quant_type", [QuantType.F16, QuantType.BF16])
def test_types_of_routers(device: Device, quant_type: QuantType) -> None:
    some = RoutedSlots(device, rules_of(PolicyKind.LFRU), (8, EXPERTS), quant_type, num_groups=4)
    assert some.folded(some.launches(0)).kernel.entry.endswith(quant_type.name.lower())
    run(some, 3)


@pytest.mark.parametrize(("kind", "block"), [(PolicyKind.LRU, 64), (PolicyKind.LEARNED_KEEP, 256)])
def test_maps_have_a_thread_for_each_of_many_experts(
    device: Device, kind: PolicyKind, block: int
) -> None:
    some = RoutedSlots(device, rules_of(kind, 512, 10), (40, 6))
    launch = some.folded(some.launches(0))
    assert (launch.block, launch.grid[0] * block) == (block, 512 * 8)
    run(some, 2)


def test_what_is_not_folded(device: Device) -> None:
    some = RoutedSlots(device, rules_of(PolicyKind.SLRU), (8,))
    router, choice, policy = some.launches(0)
    chosen = with_route(router, choice, some.counter)
    assert chosen is not None
    assert with_slots(chosen, policy) is not None
    use, ids = some.world.tables.use, some.ids
    others = [
        use(0, ids, num_tokens=2)[0],
        use(0, ids, num_before=1, num_tokens=2)[0],
        use(0, upload(device, np.zeros(USED, np.int32)))[0],
    ]
    assert all(with_slots(chosen, other) is None for other in others)
    assert with_slots(router, policy) is None
    timed = some.launches(0, route_time=route_time(some.world.tables.memory[0].state.words))
    measured = with_route(*timed[:2], some.counter)
    assert measured is not None
    assert with_slots(measured, policy) is None


def test_all_that_is_written_is_declared(device: Device) -> None:
    some = RoutedSlots(device, rules_of(PolicyKind.LEARNED_KEEP), (8, 4))
    launches = some.launches(0)
    apart = [span for launch in launches for span in written(launch)]
    assert set(map(id, written(some.folded(launches)))) == set(map(id, [*apart, some.counter]))
