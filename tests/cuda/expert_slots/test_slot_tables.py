"""The tables always hold the addresses of experts: missed, prefetched or moved ones too."""

import time
from typing import Any

import numpy as np
import pytest
from cpu_device import CpuDevice
from device_arrays import read, upload
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_policy_make import make_policy
from slot_worlds import ExtraSlots, SlotWorld

from sharpi.device.device import Device
from sharpi.experts.policy_settings import PolicyKind, PolicySettings
from sharpi.ops.cuda.expert_slots.slot_state import (
    FirstSlots,
    prefetch_wait,
    route_time,
    wait_of,
)
from sharpi.ops.cuda.expert_slots.slot_tables import DEVICE_KINDS
from sharpi.ops.cuda.launchers.experts.host_items import begin_wait, end_wait
from sharpi.ops.cuda.launchers.experts.slot_policy import (
    KernelMissMode,
    Outcome,
    Phase,
    PolicyRules,
)

EXPERTS, USED = 10, 3


BUS, COMPUTE = KernelMissMode


def rules(kind: PolicyKind, layers: int = 1, admission: bool = False) -> PolicyRules:
    return PolicyRules(int(kind), layers, EXPERTS, USED, admission)


def outcomes(world: SlotWorld, layer: int = 0) -> list[Outcome]:
    words = read(world.device, world.tables.memory[layer].outcomes, np.int32, (USED,))
    return [Outcome(word) for word in words.tolist()]


def num_slots(world: SlotWorld, layer: int) -> int:
    """The number of slots that a layer uses: kNumSlots of slot_state.cuh."""
    return int(read(world.device, world.tables.words.of(layer), np.int32, (98,))[97])


def overflow(world: SlotWorld) -> int:
    return int(read(world.device, world.tables.overflow, np.int32, (1,))[0])


def static_world(
    device: Device, miss: KernelMissMode, extra: ExtraSlots, layers: int = 1
) -> SlotWorld:
    """Experts 1, 2 and 3 have slots, and no other ever has."""
    chosen = rules(PolicyKind.STATIC, layers)
    return SlotWorld(device, chosen, (3,) * layers, extra, pinned=(3, 2, 1), miss=miss)


def test_missed_experts_are_staged_and_go_home(device: Device) -> None:
    world = static_world(device, BUS, ExtraSlots(staging=2))
    world.use(0, [5, 1, 6])
    assert outcomes(world) == [Outcome.STAGED, Outcome.HIT, Outcome.STAGED]
    world.assert_true(0, range(EXPERTS))
    piece = world.layers[0].pieces[0]
    assert piece.staging is not None
    assert world.addresses(0)[0][5] == piece.staging.address
    world.use(0, [1, 2, 7])
    assert world.addresses(0)[0][5] == piece.copies[5]
    world.assert_true(0, range(EXPERTS))
    assert world.tables.words.read_phases()[0].total[7:11] == (3, 0, 0, 0)
    assert not overflow(world)


def test_too_little_staging_is_told(device: Device) -> None:
    world = static_world(device, BUS, ExtraSlots(staging=1))
    world.use(0, [5, 1, 6])
    assert outcomes(world) == [Outcome.STAGED, Outcome.HIT, Outcome.STREAMED]
    world.assert_true(0, range(EXPERTS))
    assert overflow(world) == 1
    assert world.tables.words.read_phases()[0].total.overflows == 1
    world.tables.clear_overflow()
    world.use(0, [5, 1, 2])
    assert not overflow(world)


def test_tokens_of_a_step_share_the_staging_buffers(device: Device) -> None:
    """A buffer keeps its expert until all tokens of the step have been computed."""
    world = static_world(device, BUS, ExtraSlots(staging=3))
    assert world.use_together(0, [[5, 1, 6], [7, 5, 2]]).tolist() == [[7, 15, 7]]
    piece = world.layers[0].pieces[0]
    assert piece.staging is not None
    staged = [world.addresses(0)[0][e] for e in (5, 6, 7)]
    assert staged == [piece.staging.address + i * piece.stride for i in range(3)]
    world.assert_true(0, range(EXPERTS))
    assert not overflow(world)
    counts = world.tables.words.read_phases()[0].total
    assert (counts.accesses, counts.staged, counts.hits) == (5, 3, 2)
    world.use_together(0, [[5, 6, 7], [8, 9, 1]])
    assert overflow(world)
    assert outcomes(world) == [Outcome.STREAMED, Outcome.STREAMED, Outcome.HIT]
    world.assert_true(0, range(EXPERTS))


def test_experts_that_the_cpu_computes_have_no_address(device: Device) -> None:
    world = static_world(device, COMPUTE, ExtraSlots())
    world.use(0, [5, 1, 6])
    assert outcomes(world) == [Outcome.COMPUTED, Outcome.HIT, Outcome.COMPUTED]
    assert [int(table[5]) for table in world.addresses(0)[:1]] == [0]
    world.assert_true(0, [e for e in range(EXPERTS) if e not in (5, 6)])
    world.use(0, [5, 1, 2])
    world.assert_true(0, [e for e in range(EXPERTS) if e != 5])
    counts = world.tables.words.read_phases()[0].total
    assert (counts.computed, counts.over_bus - counts.fills) == (3, 0)


def test_prefetched_experts_are_read_early_and_then_forgotten(device: Device) -> None:
    world = static_world(device, BUS, ExtraSlots(early=3, staging=3), layers=2)
    world.use(0, [1, 2, 3])
    assert world.prefetch(1, [7, 1, 8], after=0, budget=3) == [7, 8]
    world.use(1, [9, 7, 1])
    assert outcomes(world, 1) == [Outcome.STAGED, Outcome.EARLY, Outcome.HIT]
    world.assert_true(1, range(EXPERTS))
    world.use(1, [9, 7, 1])
    assert outcomes(world, 1) == [Outcome.STAGED, Outcome.STAGED, Outcome.HIT]
    counts = world.tables.words.read_phases()[1].total
    assert (counts.early_loads, counts.early_hits, counts.early_wasted) == (2, 1, 1)
    assert (counts.predictions, counts.right_predictions) == (3, 2)


def test_prefetched_experts_move_to_slots(device: Device) -> None:
    world = SlotWorld(
        device, rules(PolicyKind.LRU, layers=2), (3, 3), ExtraSlots(early=1), warm=(1, 2)
    )
    world.use(0, [1, 2, 3])
    assert world.prefetch(1, [7, 8, 9], after=0, budget=3) == []
    world.use(0, [1, 2, 3])
    assert world.prefetch(1, [7, 8, 9], after=0, budget=3) == [7]
    loads = world.use(1, [7, 1, 2])
    assert loads.tolist() == [[7, EXPERTS + 2, EXPERTS + 3]]
    assert outcomes(world, 1) == [Outcome.LOADED, Outcome.HIT, Outcome.HIT]
    world.assert_true(1, range(EXPERTS))
    counts = world.tables.words.read_phases()[1].total
    assert (counts.loads_from_early, counts.over_bus) == (1, 3)


def test_tokens_of_a_step_share_what_was_prefetched(device: Device) -> None:
    """Each expert is counted once; at the end of the step it is forgotten."""
    world = static_world(device, COMPUTE, ExtraSlots(early=3), layers=2)
    world.use(0, [1, 2, 3])
    predictions = [[7, 1, 8], [4, 7, -1]]
    assert world.prefetch(1, predictions, after=0, budget=3) == [7, 4, 8]
    routes = upload(device, np.array([[1, 7, 5], [5, 7, 4], [7, 5, 2]], np.int32))
    for row in range(3):
        world.run(world.tables.use(1, routes, COMPUTE, num_before=row, num_tokens=3))
        assert [int(table[5]) for table in world.addresses(1)[:1]] == [0]  # for all tokens so far
    early = [int(world.addresses(1)[0][e]) for e in (7, 4, 8)]
    piece = world.layers[1].pieces[0]
    assert piece.early is not None
    assert early[:2] == [piece.early.address + i * piece.stride for i in (0, 1)]
    assert early[2] == piece.copies[8]
    counts = world.tables.words.read_phases()[1].total
    assert (counts.early_loads, counts.early_hits, counts.early_wasted) == (3, 2, 1)
    assert (counts.predictions, counts.right_predictions, counts.predicted_uses) == (4, 3, 5)
    assert (counts.accesses, counts.hits, counts.computed) == (5, 2, 1)
    world.use(1, [1, 7, 2])
    assert outcomes(world, 1) == [Outcome.HIT, Outcome.COMPUTED, Outcome.HIT]
    assert world.addresses(1)[0][4] == piece.copies[4]


def test_a_step_is_busy_if_one_of_its_tokens_loads(device: Device) -> None:
    world = static_world(device, BUS, ExtraSlots(early=3), layers=2)
    routes = upload(device, np.array([[1, 2, 5], [1, 2, 3]], np.int32))
    for row in range(2):
        world.run(world.tables.use(0, routes, num_before=row, num_tokens=2))
    assert world.prefetch(1, [[7, 1, 8]], after=0, budget=3) == []


def waited(world: SlotWorld, layer: int = 0) -> int:
    return world.tables.words.read_phases()[layer].decode.waited


def test_the_wait_for_copies_is_measured(device: Device) -> None:
    """Nothing waits for experts in slots."""
    start = time.monotonic_ns()
    world = static_world(device, BUS, ExtraSlots(staging=3))
    world.use(0, [1, 2, 3])
    assert waited(world) == 0
    world.use(0, [1, 5, 6])
    first = waited(world)
    assert first > 0
    world.use(0, [3, 2, 1])
    assert waited(world) == first < time.monotonic_ns() - start


@pytest.mark.parametrize(("delay", "is_late"), [(-500, True), (500, False)])
def test_a_prefetch_that_comes_after_the_route_is_late(
    device: Device, delay: int, is_late: bool
) -> None:
    world = static_world(device, BUS, ExtraSlots(early=3), layers=2)
    world.use(0, [1, 2, 3])
    world.prefetch(1, [7, 1, 8], after=0, budget=3)
    ended = read(device, prefetch_wait(world.tables.memory[1].state.words).waited, np.int64, (1,))
    assert ended[0] > 0
    device.upload(route_time(world.tables.memory[1].state.words), ended + delay)
    world.use(1, [1, 7, 4])
    counts = world.tables.words.read_phases()[1].decode
    assert (counts.early_hits, counts.late, counts.waited) == (1, is_late, 500 * is_late)
    world.use(1, [1, 2, 3])  # nothing came early for it
    assert world.tables.words.read_phases()[1].decode.waited == 500 * is_late


def test_a_wait_for_another_stream_is_measured(device: Device) -> None:
    world = static_world(device, COMPUTE, ExtraSlots())
    wait = wait_of(world.tables.memory[0].state.words, Phase.PROMPT)
    world.run([begin_wait(wait)])
    start = time.monotonic_ns()
    time.sleep(0.002)
    pause = time.monotonic_ns() - start
    world.run([end_wait(wait)])
    counts = world.tables.words.read_phases()[0]
    assert counts.prompt.waited >= pause
    assert counts.decode.waited == 0


def test_nothing_is_prefetched_while_the_link_is_busy(device: Device) -> None:
    world = static_world(device, BUS, ExtraSlots(early=3), layers=2)
    world.use(0, [1, 2, 5])
    assert world.prefetch(1, [7, 1, 8], after=0, budget=3) == []
    world.use(1, [7, 1, 2])
    counts = world.tables.words.read_phases()[1].total
    assert (counts.early_loads, counts.early_hits, counts.right_predictions) == (0, 0, 2)


@pytest.mark.parametrize("kind", sorted(map(PolicyKind, DEVICE_KINDS)))
def test_slots_are_given_back(device: Device, kind: PolicyKind) -> None:
    """The evicted experts are those of the reference policy, one by one."""
    pinned = (4, 6, 3, 5, 8, 2) if kind is PolicyKind.STATIC else (4,)
    chosen = PolicySettings(kind, EXPERTS, USED, (6,), pinned=(pinned,), warm=((1, 2, 3),))
    reference = make_policy(chosen)
    world = SlotWorld(device, rules(kind), (6,), pinned=pinned, warm=(1, 2, 3))
    reference.start()
    rng = np.random.default_rng(3)
    for _ in range(8):
        route = rng.choice(EXPERTS, USED, replace=False).tolist()
        reference.use(0, route)
        world.use(0, route)
        reference.end_token()
    slots = reference.layers[0]
    if kind is not PolicyKind.STATIC:
        for _ in range(4):
            slots.num_slots -= 1
            if slots.resident.sum() > slots.num_slots:
                victim = reference._victim(0)
                slots.resident[victim] = False
                reference._evicted(0, victim)
    world.tables.resize(0, 2)
    states = world.tables.words.read_states()[0]
    assert sorted(states.slot_of[states.slot_of >= 0]) == [0, 1]
    if kind is not PolicyKind.STATIC:
        np.testing.assert_array_equal(states.slot_of >= 0, slots.resident)
    world.assert_true(0, range(EXPERTS))
    world.tables.resize(0, 5)
    world.use(0, [4, 0, 9])
    assert num_slots(world, 0) == 5
    world.assert_true(0, range(EXPERTS))
    with pytest.raises(ValueError, match="memory for 6"):
        world.tables.resize(0, 7)


@pytest.mark.parametrize("kind", [PolicyKind.SLRU, PolicyKind.LEARNED_KEEP])
def test_most_used_experts_are_pinned(device: Device, kind: PolicyKind) -> None:
    chosen = PolicySettings(
        kind, EXPERTS, USED, (5, 4), pinned=((9,),) * 2, warm_pin=4, warm_pin_after=120
    )
    reference = make_policy(chosen)
    reference.start()
    world = SlotWorld(device, rules(kind, layers=2), (5, 4), pinned=(9,))
    rng = np.random.default_rng(5)
    for _ in range(30):
        for layer in range(2):
            route = rng.choice(EXPERTS, USED, replace=False, p=np.arange(1, 11) / 55).tolist()
            swaps = reference.use(layer, route)
            loads = world.use(layer, route)
            assert [swap.expert for swap in swaps] == loads[:, 0].tolist()
        waited = reference.accesses_before_pin < 0
        reference.end_token()
        if waited and reference.accesses_before_pin >= 0:
            world.tables.pin_most_used(4)
        for layer, states in world.tables.words.read_states().items():
            slots = reference.layers[layer]
            np.testing.assert_array_equal(states.pinned, slots.pinned)
            np.testing.assert_array_equal(states.slot_of >= 0, slots.resident)
            np.testing.assert_array_equal(states.uses, slots.access_count)
            world.assert_true(layer, range(EXPERTS))


def test_pins_are_half_of_the_slots_and_come_first() -> None:
    first = FirstSlots(4, pinned=(7, 7, 3, 5), warm=(1, 3, 2, 9))
    assert first.pins(PolicyKind.LRU) == [7, 3]
    assert first.residents(PolicyKind.LRU) == [3, 7, 1, 2]
    # A set that counts uses begins with warm experts.
    assert first.residents(PolicyKind.STATIC) == [3, 5, 7, 1]


route = st.lists(st.integers(0, EXPERTS - 1), min_size=USED, max_size=USED, unique=True)
steps = st.one_of(
    st.tuples(st.just("use"), st.integers(0, 1), route),
    st.tuples(st.just("prefetch"), st.integers(0, 1), route),
    st.tuples(st.just("batch"), st.integers(0, 1), st.lists(route, min_size=2, max_size=3)),
    st.tuples(st.just("resize"), st.integers(0, 1), st.integers(0, 6)),
)


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(sorted(DEVICE_KINDS)),
    miss=st.sampled_from(KernelMissMode),
    staging=st.integers(0, USED),
    early=st.integers(0, USED),
    admission=st.booleans(),
    taken=st.lists(steps, max_size=25),
)
def test_tables_lead_to_the_experts(
    kind: int,
    miss: KernelMissMode,
    staging: int,
    early: int,
    admission: bool,
    taken: list[tuple[str, int, Any]],
) -> None:
    chosen = rules(PolicyKind(kind), 2, admission)
    extra = ExtraSlots(early=early, staging=staging)
    device = CpuDevice(check=False)
    world = SlotWorld(device, chosen, (4, 6), extra, pinned=(8, 0), warm=(3, 1, 2), miss=miss)
    for what, layer, asked in taken:
        missing: list[int] = []
        if what == "batch":
            world.use_batch(layer, np.array(asked, np.int32))
        elif what == "resize":
            world.tables.resize(layer, min(asked, 4 + 2 * layer))
        else:
            if what == "prefetch":
                world.prefetch(layer, asked, after=1 - layer, budget=2)
            world.use(layer, asked)
            found = zip(asked, outcomes(world, layer), strict=True)
            missing = [expert for expert, outcome in found if outcome is Outcome.COMPUTED]
        world.assert_true(layer, [e for e in range(EXPERTS) if e not in missing])
        slots = world.tables.words.read_states()[layer].slot_of
        taken_slots = slots[slots >= 0]
        assert len(set(taken_slots.tolist())) == len(taken_slots)
        assert len(taken_slots) <= num_slots(world, layer)
