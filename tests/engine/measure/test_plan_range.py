"""Measured speeds are within the plan's range, with a tenth of experts in slots and with all."""

import pytest

from sharpi.cli.commands.plan import plan_for
from sharpi.engine.loader import load_engine
from sharpi.engine.measure.benchmark import BenchmarkTest, run_benchmark
from sharpi.gguf.reader import open_gguf
from sharpi.resources import demo_model
from sharpi.settings import RunConfig

pytestmark = [pytest.mark.native, pytest.mark.speed]


@pytest.mark.parametrize("slots", [2, 4, 8, 12, 16, None])
def test_decode_is_within_the_range(slots: int | None) -> None:
    config = RunConfig(model=demo_model(), context_size=256, device="cpu", moe_slots=slots)
    with open_gguf(config.model) as file:
        expected = plan_for(config, file).speed
    with load_engine(config) as engine:
        (row,) = run_benchmark(engine, [BenchmarkTest("tg", 100, 0)], 3)
    least, most = expected.least_tokens_per_second, expected.tokens_per_second
    assert least <= row.tokens_per_second <= most, (least, row.tokens_per_second, most)


@pytest.mark.parametrize("slots", [2, 4, 8, 12])
def test_hits_are_within_the_range(slots: int) -> None:
    config = RunConfig(model=demo_model(), context_size=512, device="cpu", moe_slots=slots)
    with open_gguf(config.model) as file:
        expected = plan_for(config, file).speed
    with load_engine(config) as engine:
        list(run_benchmark(engine, [BenchmarkTest("tg", 300, 0)], 1))
        stats = engine.expert_stats()
    assert stats is not None
    hits = sum(layer.total.hits for layer in stats.layers) / sum(
        each.total.accesses for each in stats.layers
    )
    assert expected.least_hit_rate <= hits <= expected.best_hit_rate
