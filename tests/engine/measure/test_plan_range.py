"""Measured speeds are within the plan's range, once a run has shown the model's hits."""

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
    with load_engine(config) as engine:
        (row,) = run_benchmark(engine, [BenchmarkTest("tg", 100, 0)], 3)
    with open_gguf(config.model) as file:
        expected = plan_for(config, file).speed
    least, most = expected.least_tokens_per_second, expected.tokens_per_second
    assert least <= row.tokens_per_second <= most, (least, row.tokens_per_second, most)
