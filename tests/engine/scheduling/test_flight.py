"""Steps of several groups on their way at once: every answer is what it would be alone."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from arrivals import arrivals, few_pages, prompt_of, submit_all
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from remote_model import remote_model
from scheduled import alone, asked, assert_nothing_is_left, finish, submit

from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.runner import Runner
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.engine.sequence import Sequence
from sharpi.errors import ClusterError
from sharpi.settings import RunConfig

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
REFERENCES = Path(__file__).parents[2] / "references" / "data"
IDS = np.random.default_rng(3).integers(3, 280, 900).tolist()
PROMPTS = [IDS[:5], IDS[100:180], IDS[200:201], IDS[300:430], IDS[500:564]]


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize("model", ["qwen3moe", "gemma3", "qwen3next", "lfm2moe"])
def test_text_of_groups_is_that_of_each_alone(model: str, num_ranks: int, load: Load) -> None:
    engine = load(model, num_parallel=4, context_size=256, batch_size=96)
    requests = [asked(n) for n in (20, 3, 31, 12, 7)]
    expected = [alone(engine, p, r) for p, r in zip(PROMPTS, requests, strict=True)]
    far = remote_model(engine, num_ranks)
    scheduler = Scheduler(far, 4)
    heard = [submit(scheduler, p, r) for p, r in zip(PROMPTS, requests, strict=True)]
    finish(scheduler)
    assert [(each.text, each.ids) for each in heard] == expected
    assert far.remote.most_wanted == num_ranks  # so many groups were on their way at once
    assert_nothing_is_left(scheduler, far)


def test_two_sequences_take_turns_rather_than_share_steps(load: Load) -> None:
    far = remote_model(load("qwen3moe", num_parallel=2, context_size=128), 2)
    scheduler, sizes = Scheduler(far, 2), list[int]()
    begin = far.runner.begin
    far.runner.begin = lambda segments, **more: (
        sizes.append(len(segments)) or begin(segments, **more)
    )
    for prompt in PROMPTS[:2]:
        submit(scheduler, prompt, asked(12))
    finish(scheduler)
    assert set(sizes) == {1}


def test_a_decoding_sequence_goes_on_beside_a_long_prompt(load: Load) -> None:
    """Between two of its tokens there are no more chunks of the prompt than ranks."""
    engine = load("llama", num_parallel=2, context_size=1024, batch_size=64)
    far = remote_model(engine, 2)
    scheduler = Scheduler(far, 2)
    quick = submit(scheduler, PROMPTS[0], asked(60))
    while not quick.ids:
        scheduler.step()
    slow = submit(scheduler, IDS, asked(2))
    counts = []
    while not slow.ids:
        scheduler.step()
        counts.append(len(quick.ids))
    steps_between = np.diff(np.flatnonzero(np.diff(counts)))
    assert len(steps_between) > 3
    assert max(steps_between) <= 4
    finish(scheduler)
    assert quick.ids == alone(engine, PROMPTS[0], asked(60))[1]


def test_a_lost_rank_ends_every_answer_with_its_error(load: Load) -> None:
    far = remote_model(load("qwen3moe", num_parallel=4, context_size=256), 2)
    scheduler = Scheduler(far, 4)
    heard = [submit(scheduler, prompt, asked(200)) for prompt in PROMPTS[:4]]
    for _ in range(9):
        scheduler.step()

    def lost(*_: object) -> None:
        raise ClusterError("rank 1 on b has ended")

    far.remote.receive = far.remote.send = lost
    finish(scheduler)
    assert {each.finish_info.reason for each in heard} == {"error"}
    assert {str(each.finish_info.error) for each in heard} == {"rank 1 on b has ended"}
    assert_nothing_is_left(scheduler, far)


@pytest.mark.parametrize("num_tokens", [1, 70, 400])
def test_scored_batches_on_their_way_give_the_same_logits(num_tokens: int, load: Load) -> None:
    engine = load("qwen3next", context_size=512, batch_size=32)
    far = remote_model(engine, 3)
    whole, parts = Sequence(engine.runner), Sequence(far.runner)
    ids = IDS[:num_tokens]
    np.testing.assert_array_equal(parts.extend_scored(ids), whole.extend_scored(ids))
    np.testing.assert_array_equal(parts.extend(IDS[:90]), whole.extend(IDS[:90]))
    assert num_tokens < 3 * 32 or far.remote.most_wanted == 3


def test_a_prompt_is_cut_into_chunks_for_all_ranks(load: Load) -> None:
    engine = load("llama", context_size=4096)
    assert engine.runner.prompt_chunk(4096) == 512
    chunk: Callable[[Runner, int], int] = Runner.prompt_chunk
    assert [chunk(remote_model(engine, 2).runner, n) for n in (100, 4096, 100000)] == [
        128, 192, 512,
    ]  # fmt: skip
    assert chunk(remote_model(engine, 5).runner, 8192) == 128


@pytest.fixture(scope="module", params=["qwen3next", "gemma3"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    options = {"context_size": 256, "batch_size": 48, "num_parallel": 3}
    with load_engine(RunConfig(model=REFERENCES / f"{request.param}.gguf", **options)) as engine:
        yield engine


@pytest.mark.slow
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(arrivals=arrivals, num_pages=st.integers(4, 12), num_ranks=st.integers(2, 4))
def test_whatever_comes_every_answer_is_what_it_would_be_alone(
    engine: Engine, arrivals: list[tuple], num_pages: int, num_ranks: int
) -> None:
    far = remote_model(engine, num_ranks)
    scheduler = Scheduler(far, 3)
    with few_pages(far, num_pages):
        heard = submit_all(scheduler, arrivals)
        finish(scheduler)
    for each, arrival in zip(heard, arrivals, strict=True):
        count = arrival[4]
        ids = alone(engine, prompt_of(arrival), asked(count))[1]
        assert each.ids == ids[: len(each.ids)]
        assert len(each.ids) == count or each.finish_info.reason == "cancelled"
    assert_nothing_is_left(scheduler, far)
