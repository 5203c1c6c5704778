"""Whatever arrives, ends early or runs out of pages: every answer is what it would be alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from arrivals import arrivals, few_pages, prompt_of, submit_all
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scheduled import alone, asked, assert_nothing_is_left, finish
from streamed_models import asked as asked_of_experts

from sharpi.config import RunConfig
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.scheduling.scheduler import Scheduler

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[2] / "references" / "data"
CASES = ["qwen3moe", "qwen3next", "gemma3", "qwen3moe streamed", "demo", "demo streamed"]


def make_engine(case: str, demo: Path) -> Engine:
    name, _, streamed = case.partition(" ")
    model = demo if name == "demo" else REFERENCES / f"{name}.gguf"
    slots = {"moe_slots": 3, "experts": asked_of_experts(policy="slru")} if streamed else {}
    options = {"context_size": 256, "batch_size": 48, "num_parallel": 3, **slots}
    return load_engine(RunConfig(model=model, **options))  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=CASES)
def engine(request: pytest.FixtureRequest, quick_demo: Path) -> Iterator[Engine]:
    with make_engine(request.param, quick_demo) as engine:
        yield engine


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(arrivals=arrivals, num_pages=st.integers(4, 12), parallel=st.integers(1, 3))
def test_every_answer_is_what_it_would_be_alone(
    engine: Engine, arrivals: list[tuple], num_pages: int, parallel: int
) -> None:
    prompts = [prompt_of(arrival) for arrival in arrivals]
    requests = [asked(max_tokens) for *_, max_tokens, _ in arrivals]
    expected = [alone(engine, p, r) for p, r in zip(prompts, requests, strict=True)]
    scheduler = Scheduler(engine, parallel)
    with few_pages(engine, num_pages):
        heard = submit_all(scheduler, arrivals)
        finish(scheduler)
    for each, (text, ids), arrival in zip(heard, expected, arrivals, strict=True):
        if each.finish_info.reason == "cancelled":
            assert arrival[-1] is not None
            assert each.ids == ids[: len(each.ids)]
        else:
            assert (each.finish_info.reason, each.text, each.ids) == ("length", text, ids)
    assert_nothing_is_left(scheduler, engine)
