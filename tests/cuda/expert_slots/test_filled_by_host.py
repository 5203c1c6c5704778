"""VRAM, RAM and disk at once: a policy on the host moves experts between VRAM and RAM."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_device import CpuDevice
from numpy.typing import NDArray
from short_demo import LAYERS, short_demo

from sharpi.engine.backends.gpu.part import GpuPart
from sharpi.engine.backends.gpu.slots import HostFilling
from sharpi.engine.backends.gpu.tier import GpuTier
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.sequence import Sequence
from sharpi.experts.native.store import ExpertStore
from sharpi.experts.stats.stats import ExpertStats
from sharpi.experts.stats.stats_file import contradiction, read_stats
from sharpi.settings import ExpertConfig, RunConfig

pytestmark = pytest.mark.native
MIB = 1 << 20
PROMPT = [1, *np.random.default_rng(3).integers(3, 2000, 17).tolist()]
NUM_DECODED, SLOTS, EXPERTS, USED = 10, 4, 16, 2
MOVING = ("lru", "learned-prefetch", None)
THREE_TIERS = {"moe_slots": SLOTS, "ram": 11 * MIB // 2}


def load_on(device: CpuDevice, **options: Any) -> Engine:
    usual = {"context_size": 128, "batch_size": 16, "device": "cuda"}
    config = RunConfig(model=short_demo(), **(usual | options))
    return load_engine(config, open_device=lambda _: device)


def answer(engine: Engine, count: int = NUM_DECODED) -> list[int]:
    sequence = Sequence(engine.runner)
    tokens = [int(np.argmax(sequence.extend(PROMPT)))]
    while len(tokens) <= count:
        tokens.append(sequence.extend_largest(tokens[-1]))
    return tokens


def gpu_part(engine: Engine) -> GpuPart:
    part = engine.runner.parts[-1]
    assert isinstance(part, GpuPart)
    return part


def tier_of(engine: Engine) -> GpuTier:
    tier = gpu_part(engine).gpu_tier
    assert isinstance(tier, GpuTier)
    return tier


def filling_of(engine: Engine) -> HostFilling:
    filling = tier_of(engine)._filling
    assert filling is not None
    return filling


def stored_below(engine: Engine) -> ExpertStore:
    store = filling_of(engine)._below
    assert store is not None
    return store


def bytes_in_file(engine: Engine, layer: int, matrix: str, expert: int) -> NDArray[np.uint8]:
    tensor = engine.file.tensors[f"blk.{layer}.ffn_{matrix}_exps.weight"]
    return np.asarray(tensor.data.reshape(EXPERTS, -1)[expert].view(np.uint8))


@pytest.fixture(scope="module")
def wanted() -> list[int]:
    """Returns the answer of a GPU with all experts."""
    with load_on(CpuDevice(check=False)) as engine:
        return answer(engine)


@pytest.fixture
def engines() -> Iterator[list[Engine]]:
    made: list[Engine] = []
    yield made
    for engine in made:
        engine.close()


@pytest.mark.parametrize("policy", MOVING)
def test_the_answer_and_the_statistics(
    policy: str | None, wanted: list[int], tmp_path: Path
) -> None:
    """Answers are those without slots, and the counts of both tiers add up."""
    path = tmp_path / "stats.json"
    asked = ExpertConfig(policy=policy, stats=path)
    with load_on(CpuDevice(check=False), experts=asked, **THREE_TIERS) as engine:
        assert answer(engine) == wanted
    stats = read_stats(path)
    assert contradiction(stats) is None
    assert stats.policy == {None: "slru", "learned-prefetch": "learned-keep"}.get(policy, policy)
    assert stats.below is not None
    assert stats.below.policy == ("lru" if policy == "lru" else "slru")
    assert stats.fills > SLOTS * LAYERS, "more than the first set"
    assert stats.bytes_read == sum(each.fills * each.expert_bytes for each in stats.layers)
    assert stats.decode.accesses == NUM_DECODED * USED * LAYERS
    assert stats.decode.computed == stats.below.decode.accesses


@pytest.mark.parametrize("policy", ["lru", "learned-keep"])
def test_every_tier_has_the_experts_own_bytes(policy: str, engines: list[Engine]) -> None:
    asked = ExpertConfig(policy=policy)
    engines.append(load_on(CpuDevice(check=False), experts=asked, **THREE_TIERS))
    engine = engines[-1]
    answer(engine)
    moves, store = gpu_part(engine)._memory.expert_weights.slotted.moves, stored_below(engine)  # type: ignore[union-attr]
    num_below = 0
    for layer in range(LAYERS):
        in_vram = moves.residents(layer)
        assert set(in_vram) == set(tier_of(engine).residents()[layer])
        assert len(set(in_vram)) == SLOTS
        for expert in in_vram:
            for stored, matrix in zip(moves.stored(layer, expert), ("gate", "up", "down"),
                                      strict=True):  # fmt: skip
                assert np.array_equal(stored, bytes_in_file(engine, layer, matrix, expert))
        for expert in range(EXPERTS):
            pieces = store.stored(layer, expert)
            if pieces is None:
                continue
            num_below += 1
            for piece, matrix in zip(pieces, ("gate", "up", "down"), strict=True):
                assert np.array_equal(piece, bytes_in_file(engine, layer, matrix, expert))
    assert num_below > LAYERS


def test_what_leaves_vram_takes_the_slot_of_what_moves_up(engines: list[Engine]) -> None:
    """With slots for all experts in VRAM and RAM together, no expert is read twice."""
    options = {"moe_slots": 8, "ram": 7 * MIB, "experts": ExpertConfig(policy="lru")}
    engines.append(load_on(CpuDevice(check=False), **options))
    engine = engines[-1]
    assert engine.plan is not None
    assert not engine.plan.is_mapped
    assert all(layer.vram_slots + layer.ram_slots == EXPERTS for layer in engine.plan.layers)
    answer(engine)
    below = engine.expert_stats().below  # type: ignore[union-attr]
    assert below is not None
    for layer in below.layers:
        assert layer.total.loads + layer.total.late <= EXPERTS


def test_a_set_that_was_asked_for_stays(engines: list[Engine]) -> None:
    asked = ExpertConfig(resident="ids", policy="static", resident_ids="3,5,9,11")
    engines.append(load_on(CpuDevice(check=False), experts=asked, **THREE_TIERS))
    answer(engines[-1])
    residents = tier_of(engines[-1]).residents().values()
    assert all(ids == (3, 5, 9, 11) for ids in residents)


def test_the_most_used_experts_become_the_set(engines: list[Engine]) -> None:
    asked = ExpertConfig(resident="frequency", policy="static", warmup_tokens=20)
    engines.append(load_on(CpuDevice(check=False), experts=asked, **THREE_TIERS))
    answer(engines[-1])
    stats = engines[-1].expert_stats()
    assert stats is not None
    assert contradiction(stats) is None
    assert stats.before_pin is not None
    used = [sum(layer.uses[expert] for expert in layer.pinned) for layer in stats.layers]
    first = [sum(layer.uses[:SLOTS]) for layer in stats.layers]
    assert sum(used) > sum(first)


def test_a_warm_pin(engines: list[Engine], capfd: pytest.CaptureFixture[str]) -> None:
    asked = ExpertConfig(policy="lfru", warm_pin=1, warm_pin_after=50)
    engines.append(load_on(CpuDevice(check=False), experts=asked, **THREE_TIERS))
    answer(engines[-1])
    assert "warm pin: the most used expert of each layer pinned in VRAM" in capfd.readouterr().err
    stats = engines[-1].expert_stats()
    assert stats is not None
    assert contradiction(stats) is None
    assert stats.before_pin is not None
    assert all(len(layer.pinned) == 1 for layer in stats.layers)
    assert stats.below is not None
    assert stats.below.before_pin is None


def test_a_driver_that_page_locks_nothing(wanted: list[int], engines: list[Engine]) -> None:
    """The CPU computes missed experts, which are then copied to VRAM from the mapped file."""
    device = CpuDevice(check=False, can_register=False)
    engines.append(load_on(device, moe_slots=SLOTS, experts=ExpertConfig(policy="lfru")))
    engine = engines[-1]
    assert answer(engine) == wanted
    stats = engine.expert_stats()
    assert stats is not None
    assert (stats.policy, contradiction(stats)) == ("lfru", None)
    assert stats.fills > SLOTS * LAYERS
    assert stats.below is None


def test_moves_that_cost_too_much_stop(
    engines: list[Engine],
) -> None:
    engines.append(load_on(CpuDevice(check=False), **THREE_TIERS))
    engine = engines[-1]
    answer(engine, 2)
    filling = filling_of(engine)
    trial = filling.trial
    assert trial is not None
    assert filling.moves_now
    while trial.fastest:
        trial.record(2.0 if trial.choice else 1.0)
    moved = dict(filling.num_moved)
    answer(engine)
    assert not filling.moves_now
    assert filling.num_moved == moved


def test_a_policy_that_was_named_is_kept(engines: list[Engine]) -> None:
    engines.append(
        load_on(CpuDevice(check=False), experts=ExpertConfig(policy="lru"), **THREE_TIERS)
    )
    answer(engines[-1], 2)
    assert filling_of(engines[-1]).trial is None


def test_slots_that_the_kv_cache_takes(wanted: list[int], engines: list[Engine]) -> None:
    """With fewer slots than the policy has, VRAM holds a part of the experts that it wants."""
    engines.append(
        load_on(CpuDevice(check=False), experts=ExpertConfig(policy="lru"), **THREE_TIERS)
    )
    engine = engines[-1]
    sequence = Sequence(engine.runner)
    tokens = [int(np.argmax(sequence.extend(PROMPT)))]
    slotted = gpu_part(engine)._memory.expert_weights.slotted
    assert slotted is not None
    for count in range(NUM_DECODED):
        if count == NUM_DECODED // 2:
            gpu_part(engine).drop_graphs()
            slotted.shrink(dict.fromkeys(range(LAYERS), 2))
        tokens.append(sequence.extend_largest(tokens[-1]))
    assert tokens == wanted
    assert all(len(ids) == 2 for ids in tier_of(engine).residents().values())
    stats: ExpertStats | None = engine.expert_stats()
    assert stats is not None
    assert contradiction(stats) is None


@pytest.mark.parametrize("prefetch", [True, False])
def test_predicted_experts_are_read_from_disk_ahead_of_use(
    prefetch: bool, wanted: list[int], engines: list[Engine]
) -> None:
    """The GPU's routers name the experts; those in VRAM are not read."""
    asked = ExpertConfig(policy="lru", prefetch=prefetch)
    engines.append(load_on(CpuDevice(), experts=asked, moe_slots=2, ram=4 * MIB))
    engine = engines[-1]
    assert answer(engine) == wanted
    stats = engine.expert_stats()
    assert stats is not None
    assert contradiction(stats) is None
    below = stats.below
    assert below is not None
    assert (below.prediction is not None) == prefetch
    if below.prediction is None:
        assert below.decode.prefetched == 0
        return
    assert below.prediction.predictor == "router"
    assert 0 < below.prediction.right <= below.prediction.guessed
    assert 0 < below.decode.prefetch_used <= below.decode.prefetched
    assert not any("is router, not" in note for note in stats.notes)
