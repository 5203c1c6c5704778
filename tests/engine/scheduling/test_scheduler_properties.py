"""Whatever arrives, ends early or runs out of pages: every answer is what it would be alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from arrivals import arrivals, few_pages, prompt_of, submit_all
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scheduled import alone, asked, assert_nothing_is_left, finish
from streamed_models import asked as asked_of_experts
from with_head import with_head

from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.engine.scheduling.steps import ChunkPace
from sharpi.settings import RunConfig
from sharpi.settings import SpeculationConfig as Speculation

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[2] / "references" / "data"
CASES = [
    *("qwen3next", "gemma3", "glm-dsa-chosen", "qwen3moe streamed", "deepseek32-chosen mtp"),
    *("qwen3next mtp", "qwen3moe mtp streamed", "demo drafted"),
]
DRAFTS = {
    "mtp": Speculation(kinds=("mtp",), max_drafts=6),
    "drafted": Speculation(kinds=("ngram", "suffix"), max_drafts=4),
}


def make_engine(case: str, demo: Path, folder: Path) -> Engine:
    name, *kinds = case.split()
    model = demo if name == "demo" else REFERENCES / f"{name}.gguf"
    options: dict[str, object] = {"context_size": 256, "batch_size": 48, "num_parallel": 3}
    if "streamed" in kinds:
        options |= {"moe_slots": 3, "experts": asked_of_experts(policy="slru")}
    if "mtp" in kinds:
        model = with_head(model, folder / f"{name}.gguf")
    for kind in {*kinds} & {*DRAFTS}:
        options["speculation"] = DRAFTS[kind]
    return load_engine(RunConfig(model=model, **options))  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=CASES)
def engine(
    request: pytest.FixtureRequest, quick_demo: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("headed")
    with make_engine(request.param, quick_demo, folder) as engine:
        yield engine
        if engine.config.speculation.is_on:
            assert engine.speculator.statistics.num_checked > 0


@pytest.mark.slow
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
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


def settled(fixed: float, marginal: float, batch_size: int = 512, steps: int = 60) -> int:
    """Returns the most frequent chunk size after steps with these fixed and marginal costs."""
    pace, sizes = ChunkPace(batch_size), []
    for _ in range(steps):
        sizes.append(pace.num_tokens)
        pace.record(pace.num_tokens, fixed + marginal * pace.num_tokens)
    return max(set(sizes[steps // 2 :]), key=sizes.count)


@pytest.mark.parametrize(
    ("fixed", "marginal", "tokens"),
    [
        (0.001, 1e-5, 512),  # all at once takes 6 ms
        (0.01, 1e-3, 128),  # 256 would take 0.27 s
        (0.01, 2e-2, 64),  # slow all the same: twice what the fewest take
        (0.5, 1e-3, 256),  # experts are read in any case
    ],
)
def test_steps_are_short_where_that_is_possible(fixed: float, marginal: float, tokens: int) -> None:
    assert settled(fixed, marginal) == tokens


def test_it_follows_a_machine_that_slows_down_and_recovers() -> None:
    pace = ChunkPace(512)
    for cost, slowest, fastest in ((1e-5, 512, 512), (5e-3, 32, 64), (1e-5, 512, 512)):
        for _ in range(200):
            pace.record(pace.num_tokens, cost * pace.num_tokens)
        assert slowest <= pace.num_tokens <= fastest


@pytest.mark.parametrize("batch_size", [1, 7, 32, 48])
def test_a_small_batch_is_the_limit(batch_size: int) -> None:
    pace = ChunkPace(batch_size)
    for _ in range(5):
        assert 1 <= pace.num_tokens <= batch_size
        pace.record(pace.num_tokens, 1e-6)
    assert pace.num_tokens == batch_size


def test_the_end_of_a_prompt_says_nothing() -> None:
    pace = ChunkPace(512)
    before = pace.num_tokens
    pace.record(3, 9.0)
    assert pace.num_tokens == before
