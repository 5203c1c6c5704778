"""Whatever arrives, ends early or runs out of pages: every answer is what it would be alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scheduled import Heard, alone, asked, assert_nothing_is_left, finish, submit
from streamed_models import asked as asked_of_experts

from sharpi.config import RunConfig
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.scheduling.scheduler import Scheduler

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[2] / "references" / "data"
# Prompts begin with some of the same words, so that they meet each other's pages.
TEXTS = [np.random.default_rng(s).integers(3, 280, 240).tolist() for s in (1, 2, 3)]
CASES = ["qwen3moe", "qwen3next", "gemma3", "qwen3moe streamed", "demo", "demo streamed"]

arrivals = st.lists(
    st.tuples(
        st.integers(0, 9),  # steps before it comes
        st.sampled_from(TEXTS),
        st.integers(1, 200),  # tokens that are the text's
        st.lists(st.integers(3, 280), max_size=3),
        st.integers(1, 40),  # tokens to make
        st.none() | st.integers(1, 30),  # steps after which it is cancelled
    ),
    min_size=1,
    max_size=6,
)


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


@contextmanager
def few_pages(engine: Engine, count: int) -> Iterator[None]:
    """Only so many pages are left for the scheduler."""
    pages = engine.runner.pages
    held = [pages.take() for _ in range(pages.num_pages - count)]
    yield
    pages.give_back(page for page in held if page is not None)


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(arrivals=arrivals, num_pages=st.integers(4, 12), parallel=st.integers(1, 3))
def test_every_answer_is_what_it_would_be_alone(
    engine: Engine, arrivals: list[tuple], num_pages: int, parallel: int
) -> None:
    prompts = [[*text[:length], *tail] for _, text, length, tail, _, _ in arrivals]
    requests = [asked(max_tokens) for *_, max_tokens, _ in arrivals]
    expected = [alone(engine, p, r) for p, r in zip(prompts, requests, strict=True)]
    scheduler = Scheduler(engine, parallel)
    heard: list[Heard] = []
    with few_pages(engine, num_pages):
        for (steps, *_, cancelled_after), prompt, request in zip(
            arrivals, prompts, requests, strict=True
        ):
            for _ in range(steps):
                scheduler.step()
            heard.append(submit(scheduler, prompt, request))
            if cancelled_after is not None:
                for _ in range(cancelled_after):
                    scheduler.step()
                scheduler.cancel(heard[-1].request_id)  # type: ignore[arg-type]
        finish(scheduler)
    for each, (text, ids), arrival in zip(heard, expected, arrivals, strict=True):
        if each.finish_info.reason == "cancelled":
            assert arrival[-1] is not None
            assert each.ids == ids[: len(each.ids)]
        else:
            assert (each.finish_info.reason, each.text, each.ids) == ("length", text, ids)
    assert_nothing_is_left(scheduler, engine)
