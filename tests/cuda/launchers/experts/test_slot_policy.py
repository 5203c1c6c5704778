"""The device's slot policies decide as the reference policies do, use by use."""

import os
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from cpu_device import CpuDevice
from msgspec.structs import replace
from numpy.typing import NDArray
from reference_policy import SlotPolicy
from reference_policy_make import make_policy
from slot_worlds import SlotWorld

from sharpi.device.device import Device
from sharpi.experts.native.native_policy import NativePolicy
from sharpi.experts.policy_settings import Counts, PolicyKind, PolicySettings, Swap
from sharpi.experts.trace.trace import read_trace
from sharpi.ops.cuda.expert_slots.slot_tables import DEVICE_KINDS
from sharpi.ops.cuda.launchers.experts.slot_policy import PolicyRules

sys.path.insert(0, str(Path(__file__).parents[3] / "experts"))
from route_traces import skewed_routes

KINDS = sorted(map(PolicyKind, DEVICE_KINDS))
_BESIDE = Path(__file__).parents[5] / "shared"


def settings(kind: PolicyKind, slots: tuple[int, ...], experts: int, k: int) -> PolicySettings:
    pinned = tuple((7, 3, 0, 5) for _ in slots) if kind is PolicyKind.STATIC else ()
    return PolicySettings(kind, experts, k, slots, pinned=pinned)


class Both:
    """A reference or native policy and the device's policy, given the same routes."""

    def __init__(
        self, device: Device, chosen: PolicySettings, reference: SlotPolicy | NativePolicy
    ) -> None:
        self.chosen, self.reference = chosen, reference
        rules = PolicyRules(
            kind=chosen.kind,
            num_layers=chosen.num_layers,
            num_experts=chosen.num_experts,
            experts_per_token=chosen.experts_per_token,
            admission=chosen.admission,
        )
        warm = chosen.warm[0] if chosen.warm else ()
        self.world = SlotWorld(device, rules, chosen.slots, pinned=chosen.pins(0), warm=warm)
        self.residents: list[set[int]] = [set() for _ in chosen.slots]
        self.num_evicted = [0] * len(chosen.slots)
        first = [(swap.layer, swap.expert) for swap in reference.start()]
        layers = self.world.layers.items()
        loads = [(i, e) for i, each in layers for e in each.first.residents(rules.kind)]
        assert sorted(first) == sorted(loads)
        for layer, expert in first:
            self.residents[layer].add(expert)

    def use(self, layer: int, route: list[int]) -> None:
        loads = self.world.decide(layer, route)
        self._same(layer, self.reference.use(layer, route), loads)

    def use_batch(self, layer: int, routes: NDArray[np.int32]) -> None:
        loads = self.world.use_batch(layer, routes)
        self._same(layer, self.reference.use_batch(layer, routes), loads)

    def _same(self, layer: int, swaps: list[Swap], loads: NDArray[np.int32]) -> None:
        assert [swap.expert for swap in swaps] == loads[:, 0].tolist()
        for swap in swaps:
            self.residents[layer].discard(swap.victim)
            self.num_evicted[layer] += swap.victim >= 0
            self.residents[layer].add(swap.expert)
        if swaps:
            slot_of = self.world.tables.words.read_states()[layer].slot_of
            assert set(np.flatnonzero(slot_of >= 0).tolist()) == self.residents[layer]

    def end_batch(self, tokens: int) -> None:
        self.world.run(self.world.tables.end_batch(tokens))
        assert self.reference.end_token() == []

    def _expected(self, layer: int) -> tuple[Counts, NDArray[np.bool_]]:
        if isinstance(self.reference, NativePolicy):
            return self.reference.all_counts()[layer], self.reference.states().resident[layer]
        return self.reference.counts(layer), np.asarray(self.reference.layers[layer].resident)

    def assert_same_state(self) -> None:
        counts = self.world.tables.words.read_phases()
        for layer, states in self.world.tables.words.read_states().items():
            expected, resident = self._expected(layer)
            found = counts[layer].total
            into_slots = found.loads + found.loads_from_early + found.fills
            assert (found.accesses, found.hits, into_slots) == expected[:3]
            np.testing.assert_array_equal(states.slot_of >= 0, resident)

    def run(self, routes: NDArray[np.int32]) -> None:
        """Runs decoded tokens, with a new text now and then."""
        for token, layers in enumerate(routes):
            if token % 301 == 300:
                self.world.tables.reset_sequence()
                self.reference.reset_sequence()
            for layer in self.world.layers:
                self.use(layer, layers[layer].tolist())
            assert self.reference.end_token() == []
        self.assert_same_state()


@pytest.mark.parametrize("kind", KINDS)
def test_tokens(device: Device, kind: PolicyKind) -> None:
    chosen = settings(kind, (4, 0, 2, 8), 12, 3)
    Both(device, chosen, make_policy(chosen)).run(skewed_routes(25, 4, 12, 3))


@pytest.mark.parametrize("kind", KINDS)
def test_many_tokens(kind: PolicyKind) -> None:
    """Frequencies shrink after some 320 tokens of a layer, and a new text begins before."""
    chosen = settings(kind, (4, 1, 6, 16, 12), 16, 3)
    Both(CpuDevice(check=False), chosen, make_policy(chosen)).run(skewed_routes(340, 5, 16, 3))


@pytest.mark.parametrize(
    "changes",
    [
        {"admission": True},
        {"pinned": ((2, 9, 9, 4, 11),) * 3},
        {"warm": ((8, 1, 8, 15, 0, 3, 4, 5, 6, 7),) * 3},
        {"pinned": ((1, 40),) * 3, "warm": ((1, 3, 5, 40, 41, 42, 43, 44, 45, 46, 47),) * 3},
    ],
)
@pytest.mark.parametrize("kind", [PolicyKind.SLRU, PolicyKind.LEARNED_KEEP, PolicyKind.LFRU])
def test_admission_pins_and_warm_ones(kind: PolicyKind, changes: dict[str, object]) -> None:
    chosen = replace(settings(kind, (6, 20, 11), 48, 6), **changes)  # type: ignore[arg-type]
    both = Both(CpuDevice(check=False), chosen, make_policy(chosen))
    both.run(skewed_routes(90, 3, 48, 6, seed=1))
    assert min(both.num_evicted) > 20


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_batches_between_tokens(kind: PolicyKind, checks: bool) -> None:
    chosen = settings(kind, (4, 0, 6, 15), 16, 3)
    both = Both(CpuDevice(check=checks), chosen, make_policy(chosen))
    routes = skewed_routes(400, 4, 16, 3, seed=2)
    batches = [(0, 2), (2, 72), (72, 300)]
    for begin, end in batches[: 2 if checks else 3]:
        for layer in both.world.layers:
            both.use_batch(layer, routes[begin:end, layer])
        both.end_batch(end - begin)
        both.run(routes[300 : 302 if checks else 340])


def test_five_hundred_experts_and_ten_used(device: Device) -> None:
    chosen = settings(PolicyKind.SLRU, (40,), 512, 10)
    both = Both(device, chosen, make_policy(chosen))
    routes = skewed_routes(12, 1, 512, 10)
    both.use_batch(0, routes[:3, 0])
    both.end_batch(3)
    both.run(routes)


def test_counts_are_scaled_back(device: Device) -> None:
    """After some 320 tokens of a layer all frequencies shrink."""
    chosen = replace(settings(PolicyKind.SLRU, (3,), 8, 2), admission=True)
    Both(device, chosen, make_policy(chosen)).run(skewed_routes(340, 1, 8, 2))


@cache
def real_routes(path: Path, tokens: int) -> NDArray[np.int32]:
    """Returns two layers of a trace's first tokens."""
    return np.ascontiguousarray(read_trace(path).routes[:tokens, 4:6])


@pytest.mark.shared
@pytest.mark.native
@pytest.mark.parametrize(
    ("kind", "admission"), [(kind, False) for kind in KINDS] + [(PolicyKind.SLRU, True)]
)
@pytest.mark.parametrize("slots", [4, 8, 16, 24])
def test_real_routes(kind: PolicyKind, admission: bool, slots: int) -> None:
    """SHARPI_SLOT_TOKENS sets how many tokens of the trace are replayed; by default 150."""
    path = Path(os.environ.get("TESTS_SHARED", _BESIDE)) / "traces" / "gpt-oss-20b.npz"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    routes = real_routes(path, int(os.environ.get("SHARPI_SLOT_TOKENS", "150")))
    chosen = replace(settings(kind, (slots,) * 2, 32, 4), admission=admission)
    native = NativePolicy(chosen)
    Both(CpuDevice(check=False), chosen, native).run(routes)
    native.close()
