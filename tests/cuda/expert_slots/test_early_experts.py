"""Experts prefetched for the next layer by right, wrong and late predictions: the same tokens."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from cpu_device import CpuDevice
from msgspec.structs import replace
from short_demo import short_demo

from sharpi.device.device import Event, Work
from sharpi.device.gpu_kernels import kernel_source
from sharpi.engine.backends.parts import gpu_tier_of
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.sequence import Sequence as TokenSequence
from sharpi.experts.layer_stats import PhaseCounts
from sharpi.experts.stats.stats import PredictionStats
from sharpi.experts.stats.stats_collect import RunFacts
from sharpi.settings import ExpertConfig, Miss, RunConfig
from sharpi.trial import TRIAL_TOKENS

pytestmark = pytest.mark.native
PROMPT, NUM_TOKENS = [1, 200, 31, 77, 402, 9], 10
Load = Callable[..., Engine]


class LateDevice(CpuDevice):
    """A device that does the work of the side stream only when it is waited for."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._pending: deque[Work] = deque()
        self._num_done = 0

    def on_side_stream(self, work: Sequence[Work]) -> Event:
        self._pending.extend(work)
        return self._num_done + len(self._pending)

    def after(self, event: Event) -> None:
        while self._num_done < event:
            self._pending.popleft()()
            self._num_done += 1

    @property
    def is_forgotten(self) -> bool:
        """Says if work was started and never waited for, which a graph does not allow."""
        return bool(self._pending)


def wrong_predictions() -> dict[str, str]:
    """Changes the kernel that reads predictions, so that it reads wrong ones."""
    text = kernel_source("slot_prefetch")
    taken = "? ids[token * used + rank]"
    assert taken in text
    return {"slot_prefetch": text.replace(taken, "? (ids[token * used + rank] + 1) % 16")}


@pytest.fixture
def load() -> Iterator[Load]:
    engines: list[Engine] = []

    def load_one(device: CpuDevice, **options: Any) -> Engine:
        config = RunConfig(model=short_demo(), device="cuda", context_size=64, **options)
        engines.append(load_engine(config, open_device=lambda _: device))
        return engines[-1]

    yield load_one
    for engine in engines:
        engine.close()


def greedy(engine: Engine) -> list[int]:
    sequence = TokenSequence(engine.runner)
    tokens = [int(np.argmax(sequence.extend(PROMPT)))]
    while len(tokens) < NUM_TOKENS:
        tokens.append(sequence.extend_largest(tokens[-1]))
    return tokens


@cache
def words_of_a_first_set() -> list[int]:
    """Returns the answer with two slots of experts that stay, and no predictions."""
    experts = ExpertConfig(miss="cpu", resident="first-n", prefetch=False)
    config = RunConfig(
        model=short_demo(), device="cuda", context_size=64, moe_slots=2, experts=experts
    )
    with load_engine(config, open_device=lambda _: CpuDevice(check=False)) as engine:
        return greedy(engine)


def prediction(engine: Engine) -> PredictionStats | None:
    tier = gpu_tier_of(engine.runner.parts)
    assert tier is not None
    return tier.stats(RunFacts("demo", 0, NUM_TOKENS)).prediction


def decoded(engine: Engine) -> PhaseCounts:
    stats = engine.expert_stats()
    assert stats is not None
    return stats.decode


@pytest.mark.parametrize("miss", ["bus", "cpu"])
def test_tokens_are_the_same_with_and_without(miss: Miss, load: Load) -> None:
    experts = ExpertConfig(miss=miss, policy="slru")
    without = load(CpuDevice(False), moe_slots=6, experts=replace(experts, prefetch=False))
    wanted = greedy(without)
    assert prediction(without) is None
    found = load(CpuDevice(), moe_slots=6, experts=experts)
    assert greedy(found) == wanted
    stats = prediction(found)
    assert stats is not None
    assert 0 < stats.right < stats.guessed == stats.used


@pytest.mark.parametrize("texts", [{}, wrong_predictions()], ids=["as predicted", "spoilt"])
@pytest.mark.parametrize("kind", [CpuDevice, LateDevice])
def test_guesses_may_be_wrong_and_copies_late(
    kind: type[CpuDevice], texts: dict[str, str], load: Load
) -> None:
    """With a static set, whose misses the CPU computes, the bus is idle for predictions."""
    experts = ExpertConfig(miss="cpu", resident="first-n")
    device = kind(check=False, texts=texts)
    engine = load(device, moe_slots=2, experts=experts)
    assert greedy(engine) == words_of_a_first_set()
    stats = prediction(engine)
    assert stats is not None
    counts = decoded(engine)
    assert counts.prefetched > counts.prefetch_used
    assert stats.precision == stats.recall
    assert 0 < counts.wasted_bytes <= stats.bytes_moved
    if texts:
        assert stats.right < 0.5 * stats.guessed
    else:
        assert stats.right > 0.5 * stats.guessed
    if isinstance(device, LateDevice):
        assert not device.is_forgotten


def test_nothing_goes_on_that_nobody_waits_for(load: Load) -> None:
    """The last layer computes nothing for tokens whose output is not requested."""
    experts = ExpertConfig(miss="bus", policy="slru")
    wanted = greedy(load(CpuDevice(False), moe_slots=12, experts=replace(experts, prefetch=False)))
    device = LateDevice(check=False)
    engine = load(device, moe_slots=12, batch_size=1, experts=experts)
    assert greedy(engine) == wanted
    stats = prediction(engine)
    assert stats is not None
    assert decoded(engine).prefetched > 0
    assert not device.is_forgotten


def test_other_predictors_are_the_router_on_a_gpu(load: Load) -> None:
    experts = ExpertConfig(miss="bus", predictor="last-token")
    engine = load(CpuDevice(), moe_slots=2, experts=experts)
    engine.runner.prepare()
    stats = engine.expert_stats()
    assert stats is not None
    assert stats.prediction is not None
    assert stats.prediction.predictor == "router"
    assert "on a GPU the predictor is router, not last-token" in stats.notes


def test_it_switches_itself_off(load: Load) -> None:
    engine = load(CpuDevice(), moe_slots=2, experts=ExpertConfig(miss="bus"))
    tier = gpu_tier_of(engine.runner.parts)
    assert tier is not None
    assert tier.trial is not None
    for _ in range(4 * TRIAL_TOKENS):
        tier.end_step(1, 2.0 if tier.predicts else 1.0)
    assert not tier.predicts
    assert "prefetching of predicted experts switched off" in tier.notes[-1]


def test_no_predictions_while_miss_modes_are_compared(load: Load) -> None:
    engine = load(CpuDevice(), moe_slots=2)
    tier = gpu_tier_of(engine.runner.parts)
    assert tier is not None
    modes = set()
    while not tier.predicts:
        modes.add(tier.mode)
        tier.end_step(1, {"bus": 1.0, "cpu": 3.0}[tier.mode])
    assert modes == {"bus", "cpu"}
    assert tier.mode == "bus"
