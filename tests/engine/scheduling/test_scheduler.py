"""Several answers at once: the same text as alone, parts of steps, ends, faults of one of them."""

from collections.abc import Callable

import numpy as np
import pytest
from scheduled import alone, asked, assert_nothing_is_left, finish, submit

from sharpi.engine.engine import Engine
from sharpi.engine.sampling.generation_state import TextDelta
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.errors import ContextFullError, ModelFileError, UsageError
from sharpi.settings import SamplingParams

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
IDS = np.random.default_rng(3).integers(3, 280, 900).tolist()
PROMPTS = [IDS[:5], IDS[100:180], IDS[200:201], IDS[300:430], IDS[500:564]]
MODELS = ["qwen3moe", "gpt-oss", "deepseek3", "gemma3", "llama4", "qwen3next", "lfm2moe"]


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["int8", "f32"])
@pytest.mark.parametrize("model", MODELS)
def test_greedy_text_is_the_same_beside_others(model: str, precision: str, load: Load) -> None:
    engine = load(model, num_parallel=4, context_size=256, batch_size=96, precision=precision)
    requests = [asked(n) for n in (20, 3, 31, 12, 7)]
    expected = [alone(engine, p, r) for p, r in zip(PROMPTS, requests, strict=True)]
    scheduler = Scheduler(engine, 4)
    heard = []
    for prompt, request in zip(PROMPTS, requests, strict=True):
        heard.append(submit(scheduler, prompt, request))
        scheduler.step()
    finish(scheduler)
    assert [(each.text, each.ids) for each in heard] == expected
    assert {each.finish_info.reason for each in heard} == {"length"}
    assert_nothing_is_left(scheduler, engine)


@pytest.mark.slow
@pytest.mark.parametrize("num_parallel", [4, 7])
def test_long_contexts_of_several_are_shared_among_threads(num_parallel: int, load: Load) -> None:
    """More than 512 positions are more than one span, whose results are merged."""
    options = {"context_size": 1300, "num_threads": 2, "num_parallel": num_parallel}
    engine = load("gemma3", **options)
    long = np.random.default_rng(5).integers(3, 280, 9000).tolist()
    lengths = [1200, 30, 700, 520, 5, 1030, 600][:num_parallel]
    prompts = [long[1200 * i : 1200 * i + length] for i, length in enumerate(lengths)]
    expected = [alone(engine, prompt, asked(6)) for prompt in prompts]
    scheduler = Scheduler(engine, num_parallel)
    heard = [submit(scheduler, prompt, asked(6)) for prompt in prompts]
    finish(scheduler)
    assert [(each.text, each.ids) for each in heard] == expected


def test_sampled_text_is_the_same_beside_others(load: Load) -> None:
    engine = load("mixtral", num_parallel=3, context_size=128)
    requests = [asked(20, sampling=SamplingParams(seed=s, temperature=1.5)) for s in (1, 2, 3)]
    expected = [alone(engine, PROMPTS[0], r) for r in requests]
    scheduler = Scheduler(engine, 3)
    heard = [submit(scheduler, PROMPTS[0], r) for r in requests]
    finish(scheduler)
    assert [(each.text, each.ids) for each in heard] == expected
    assert len({each.text for each in heard}) == 3


def test_no_more_run_than_may_and_the_first_come_first(load: Load) -> None:
    engine = load("llama", num_parallel=2, context_size=128)
    scheduler = Scheduler(engine, 2)
    heard = [submit(scheduler, PROMPTS[0], asked(n)) for n in (9, 4, 4, 4)]
    most, ended = 0, []
    while scheduler.step():
        most = max(most, scheduler.num_running)
        ended += [i for i, each in enumerate(heard) if each.finish_infos and i not in ended]
    assert most == 2
    assert ended == [1, 2, 0, 3]
    with pytest.raises(UsageError, match="1 to 2"):
        Scheduler(engine, 3)


def test_running_answers_go_on_while_a_long_prompt_is_computed(load: Load) -> None:
    engine = load("llama", num_parallel=2, context_size=1024, batch_size=512)
    scheduler = Scheduler(engine, 2)
    first = submit(scheduler, PROMPTS[0], asked(200))
    scheduler.step()
    second = submit(scheduler, IDS[50:850], asked(3))
    counts = []
    while not second.deltas:
        scheduler.step()
        counts.append(len(first.ids))
    assert len(counts) > 1
    assert counts == list(range(counts[0], counts[0] + len(counts)))
    assert scheduler.num_prefill_tokens == 5 + 800
    finish(scheduler)
    assert scheduler.num_generated_tokens == 203


def test_a_cancelled_answer_ends_before_the_next_step(load: Load) -> None:
    engine = load("qwen3moe", num_parallel=2, context_size=128)
    scheduler = Scheduler(engine, 2)
    running, waiting = [submit(scheduler, p, asked(60)) for p in (PROMPTS[0], PROMPTS[4])], []
    for _ in range(4):
        scheduler.step()
    waiting.append(submit(scheduler, PROMPTS[1], asked(5)))
    counts = [len(each.ids) for each in running]
    for each in (running[0], waiting[0]):
        assert each.request_id is not None
        scheduler.cancel(each.request_id)
        scheduler.cancel(each.request_id)
    scheduler.step()
    assert running[0].finish_info.reason == waiting[0].finish_info.reason == "cancelled"
    assert [len(running[0].ids), len(running[1].ids)] == [counts[0], counts[1] + 1]
    finish(scheduler)
    assert running[1].text == alone(engine, PROMPTS[4], asked(60))[0]
    scheduler.cancel(running[1].request_id)  # type: ignore[arg-type]
    assert scheduler.step() is False
    assert_nothing_is_left(scheduler, engine)


@pytest.mark.parametrize("shift", [False, True])
def test_a_full_context_ends_or_shifts_as_alone(shift: bool, load: Load) -> None:
    engine = load("llama", num_parallel=2, context_size=70, context_shift=shift)
    expected = [alone(engine, p, asked(100)) for p in (PROMPTS[0], PROMPTS[4])]
    scheduler = Scheduler(engine, 2)
    heard = [submit(scheduler, p, asked(100)) for p in (PROMPTS[0], PROMPTS[4])]
    finish(scheduler)
    assert [(each.text, each.ids) for each in heard] == expected
    reason = "length" if shift else "context"
    assert [each.finish_info.reason for each in heard] == [reason] * 2


def test_what_can_never_run_is_refused_at_once(load: Load) -> None:
    scheduler = Scheduler(load("llama", num_parallel=2, context_size=64), 2)
    with pytest.raises(ContextFullError, match="64 tokens > 64 maximum context length"):
        submit(scheduler, PROMPTS[4], asked())
    with pytest.raises(UsageError, match="empty"):
        submit(scheduler, [], asked())
    with pytest.raises(UsageError, match=r"0\.\.287"):
        submit(scheduler, [288], asked())
    assert scheduler.step() is False


def test_clients_take_turns_where_requests_wait(load: Load) -> None:
    scheduler = Scheduler(load("llama", num_parallel=2, context_size=128), 2)
    heard = [submit(scheduler, PROMPTS[0], asked(4 + each), client="a") for each in range(6)]
    heard += [submit(scheduler, PROMPTS[0], asked(4), client="b") for _ in range(2)]
    ends: list[int] = []
    while scheduler.step():
        ends += [i for i, each in enumerate(heard) if each.finish_infos and i not in ends]
    assert set(ends[:2]) == {0, 6}
    assert set(ends[2:4]) == {1, 7}
    assert ends[4:] == [2, 3, 4, 5]


class Faulty:
    """A constraint that fails at its third choice."""

    def __init__(self) -> None:
        self.count = 0

    def allowed(self) -> None:
        self.count += 1
        if self.count == 3:
            raise RuntimeError("broken grammar")

    def accept(self, token: int) -> None:
        pass


def test_an_error_of_one_answer_ends_that_one(load: Load) -> None:
    engine = load("olmoe", num_parallel=4, context_size=128)
    expected = alone(engine, PROMPTS[1], asked(15))
    scheduler = Scheduler(engine, 4)

    def refuse(delta: TextDelta) -> None:
        raise ConnectionError("the reader has gone")

    sound = submit(scheduler, PROMPTS[1], asked(15))
    broken = submit(scheduler, PROMPTS[0], asked(15), Faulty())
    finish_infos = []
    scheduler.submit(PROMPTS[4], asked(15), on_delta=refuse, on_end=finish_infos.append)
    scheduler.submit(PROMPTS[4], asked(2), on_delta=lambda _: None, on_end=lambda _: 1 / 0)
    finish(scheduler)
    assert (sound.text, sound.ids) == expected
    assert broken.finish_info.reason == "error"
    assert isinstance(broken.finish_info.error, RuntimeError)
    assert len(broken.ids) == 2
    assert isinstance(finish_infos[0].error, ConnectionError)
    assert_nothing_is_left(scheduler, engine)


@pytest.mark.parametrize("model", ["qwen3moe", "qwen3next"])
def test_a_step_that_fails_ends_the_answers_whose_fault_it_is(
    model: str, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load(model, num_parallel=3, context_size=128)
    requests = [asked(12, sampling=SamplingParams(seed=s, temperature=0.7)) for s in (1, 2, 3)]
    expected = [alone(engine, p, r) for p, r in zip(PROMPTS, requests, strict=False)]
    scheduler = Scheduler(engine, 3)
    begin, bad = engine.runner.begin, 2

    def failing(segments, **options):  # type: ignore[no-untyped-def]
        begun = begin(segments, **options)
        if any(each.sequence == bad and each.position > len(PROMPTS[1]) + 4 for each in segments):
            raise ModelFileError("an expert cannot be read")
        return begun

    monkeypatch.setattr(engine.runner, "begin", failing)
    heard = [submit(scheduler, p, r) for p, r in zip(PROMPTS, requests, strict=False)]
    finish(scheduler)
    assert [each.finish_info.reason for each in heard] == ["length", "error", "length"]
    assert isinstance(heard[1].finish_info.error, ModelFileError)
    for each, (text, ids) in zip(heard, expected, strict=True):
        assert each.ids == ids[: len(each.ids)]
        assert text.startswith(each.text)
    assert len(heard[1].ids) == 6
    assert_nothing_is_left(scheduler, engine)


def test_logprobs_and_stops_are_each_answers_own(load: Load) -> None:
    engine = load("qwen2", num_parallel=2, context_size=128)
    text, _ = alone(engine, PROMPTS[0], asked(12))
    scheduler = Scheduler(engine, 2)
    stopped = submit(scheduler, PROMPTS[0], asked(12, stop=(text[4:7],)))
    scored = submit(scheduler, PROMPTS[0], asked(12, num_logprobs=2))
    none = submit(scheduler, PROMPTS[0], asked(0))
    finish(scheduler)
    assert stopped.finish_info.stop == text[4:7]
    assert stopped.text == text[: text.index(text[4:7])]
    choices = [choice for delta in scored.deltas for choice in delta.tokens]
    assert len(choices) == 12
    assert all(choice.alternatives[0] == (choice.id, choice.logprob) for choice in choices)
    assert (none.finish_info.reason, none.text, none.deltas) == ("length", "", [])
