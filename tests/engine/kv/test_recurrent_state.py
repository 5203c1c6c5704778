"""A model with recurrent layers behaves like one with a KV cache: turns, edits, shifts, errors."""

from collections.abc import Callable

import numpy as np
import pytest

from sharpi.engine.engine import Engine
from sharpi.engine.kv.pages import CachedPage, StatePool
from sharpi.engine.runner import StepInFlight
from sharpi.engine.scheduling.state_snapshots import StateSnapshots
from sharpi.engine.sequence import Sequence
from sharpi.errors import ContextFullError
from sharpi.ops.recurrent import MAX_STATES
from sharpi.settings import GenerationRequest, SamplingParams

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
CASES = ["lfm2moe", "qwen3next", "qwen35", "granitehybrid", "nemotron_h_moe"]
IDS = np.random.default_rng(4).integers(3, 280, 700).tolist()


def fresh(engine: Engine, ids: list[int]) -> np.ndarray:
    sequence = Sequence(engine.runner)
    logits = sequence.extend(ids).copy()
    sequence.truncate(0)
    return logits


@pytest.mark.parametrize("case", CASES)
def test_a_shorter_sequence_is_as_if_it_had_never_been_longer(case: str, load: Load) -> None:
    engine = load(case)
    sequence = Sequence(engine.runner)
    for ids in (IDS[:20], IDS[20:50]):
        sequence.extend(ids)
        sequence.save_snapshot()
    sequence.truncate(35)
    assert (len(sequence.tokens), sequence._open().length) == (35, 20)
    other = IDS[100:110]
    expected = fresh(engine, IDS[:35] + other)
    assert np.array_equal(sequence.extend(other), expected)
    sequence.truncate(0)
    assert np.array_equal(sequence.extend(IDS[:35] + other), expected)


@pytest.mark.parametrize("case", CASES)
def test_a_turn_that_goes_on_computes_nothing_twice(case: str, load: Load) -> None:
    session = load(case).session()
    request = GenerationRequest(max_tokens=6, sampling=SamplingParams(temperature=0))
    first = session.generate(IDS[:30], request)
    list(first)
    prompt = [*session.tokens, *IDS[60:70]]
    second = session.generate(prompt, request)
    list(second)
    assert second.timings.num_cached_tokens == len(prompt) - 10
    fresh_session = load(case).session()
    alone = fresh_session.generate(prompt, request)
    list(alone)
    assert alone.ids == second.ids


def test_the_end_of_a_long_prompt_may_be_rewritten_cheaply(load: Load) -> None:
    engine = load("lfm2moe")
    request = GenerationRequest(
        max_tokens=1, sampling=SamplingParams(temperature=0), num_logprobs=20
    )
    session = engine.session()
    list(session.generate(IDS[:400], request))
    rewritten = session.generate([*IDS[:395], 5, 6], request)
    list(rewritten)
    assert rewritten.timings.num_cached_tokens == 384
    alone = engine.session().generate([*IDS[:395], 5, 6], request)
    list(alone)
    assert alone.timings.num_cached_tokens == 0
    assert rewritten.choices == alone.choices
    assert alone.choices[0].id == int(np.argmax(fresh(engine, [*IDS[:395], 5, 6])))


def test_a_prompt_that_does_not_fit_is_refused_before_anything_is_computed(load: Load) -> None:
    sequence = Sequence(load("lfm2moe", context_size=320).runner)
    with pytest.raises(ContextFullError):
        sequence.extend(IDS[:330])
    assert sequence.tokens == []


def test_a_context_shift_continues_as_a_fresh_prompt(load: Load) -> None:
    request = GenerationRequest(max_tokens=40, sampling=SamplingParams(temperature=0))
    engine = load("qwen3next", context_size=64, context_shift=True)
    generation = engine.session().generate(IDS[:50], request)
    list(generation)
    tokens = IDS[:50] + generation.ids
    at = next(i for i in range(len(tokens)) if i == 64)
    kept = [tokens[0], *tokens[at + 1 - 31 : at + 1]]
    engine = load("qwen3next", context_size=64)
    assert int(np.argmax(fresh(engine, kept))) == tokens[at + 1]


@pytest.mark.parametrize("case", CASES)
def test_a_step_that_fails_is_computed_again(
    case: str, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load(case)
    sequence = Sequence(engine.runner)
    sequence.extend(IDS[:20])
    sequence.save_snapshot()
    run = engine.runner.begin

    def interrupted(*arguments: object, **options: object) -> StepInFlight:
        run(*arguments, **options)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(engine.runner, "begin", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sequence.extend(IDS[20:25])
    monkeypatch.undo()
    assert sequence.tokens == IDS[:20]
    assert np.array_equal(sequence.extend(IDS[20:30]), fresh(engine, IDS[:30]))


def test_sequences_have_states_of_their_own(load: Load) -> None:
    engine = load("qwen35")
    a, b = Sequence(engine.runner), Sequence(engine.runner)
    for i in range(0, 20, 5):
        last_a, last_b = a.extend(IDS[i : i + 5]).copy(), b.extend(IDS[i + 40 : i + 45]).copy()
    assert np.array_equal(last_a, fresh(engine, IDS[:20]))
    assert np.array_equal(last_b, fresh(engine, IDS[40:60]))


class Memory:
    """The states of a runner, each a number."""

    def __init__(self, num_states: int) -> None:
        self.states, self.states_after, self.memory = StatePool(num_states), StatePool(0), self
        self.contents = [0] * num_states

    def copy_state(self, source: int, target: int) -> None:
        self.contents[target] = self.contents[source]


def test_snapshots_give_way_and_states_in_use_do_not() -> None:
    memory = Memory(3)
    pool, page = memory.states, CachedPage(0, None)
    snapshots = StateSnapshots(memory)  # type: ignore[arg-type]
    live = pool.allocate()
    for position in (1, 2, 3):
        memory.contents[live] = position
        snapshots.save_copy(page, position, live)
    assert sorted(page.states) == [2, 3]
    assert sorted(memory.contents) == [2, 3, 3]
    recalled, is_known = snapshots.allocate(page, 2)
    assert (is_known, memory.contents[recalled]) == (True, 2)
    assert sorted(page.states) == [2]
    snapshots.drop(page, beyond=1)
    assert sorted(page.states) == []
    pool.allocate()
    snapshots.save_copy(page, 9, live)
    assert sorted(page.states) == []
    with pytest.raises(ContextFullError, match="all 3 states"):
        pool.allocate()


def test_sessions_make_room_for_each_other(load: Load) -> None:
    """The first one's snapshots go when the others need their states; its text stays right."""
    engine = load("lfm2moe", context_size=64)
    request = GenerationRequest(max_tokens=3, sampling=SamplingParams(temperature=0))
    first = engine.session()
    list(first.generate(IDS[:20], request))
    for at in (100, 200, 300, 400):
        list(engine.session().generate(IDS[at : at + 20], request))
    again = first.generate(IDS[:30], request)
    list(again)
    assert again.timings.num_cached_tokens == 0
    assert again.ids[0] == int(np.argmax(fresh(load("lfm2moe"), IDS[:30])))


def test_the_planner_counts_every_state(load: Load) -> None:
    engine = load("lfm2moe")
    assert engine.plan is not None
    states = [layer.kv_bytes for layer in engine.plan.layers if layer.index != 1]
    assert states == [MAX_STATES * 4 * 2 * 64] * 2
