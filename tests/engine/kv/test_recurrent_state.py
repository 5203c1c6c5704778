"""A model with recurrent layers behaves as one with a KV cache: turns, edits, shifts, mishaps."""

from collections.abc import Callable

import numpy as np
import pytest

from sharpi.config import GenerationRequest, SamplingParams
from sharpi.engine.engine import Engine
from sharpi.engine.kv.state_pool import StatePool
from sharpi.engine.sequence import Sequence
from sharpi.errors import ContextFullError
from sharpi.ops.state_layout import MAX_STATES

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
        sequence.prefill(ids)
    sequence.truncate(35)
    assert (len(sequence.tokens), sequence.num_ready) == (35, 20)
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
    sequence = Sequence(engine.runner)
    sequence.prefill(IDS[:400])
    sequence.truncate(395)
    assert sequence.num_ready == 384
    assert np.array_equal(sequence.extend([5, 6]), fresh(engine, [*IDS[:395], 5, 6]))


def test_a_prompt_that_does_not_fit_is_refused_before_anything_is_computed(load: Load) -> None:
    sequence = Sequence(load("lfm2moe", context_size=320).runner)
    with pytest.raises(ContextFullError):
        sequence.prefill(IDS[:330])
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
    sequence.prefill(IDS[:20])
    run = engine.runner.forward

    def interrupted(*arguments: object) -> np.ndarray:
        run(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(engine.runner, "forward", interrupted)
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


def test_snapshots_give_way_and_states_in_use_do_not() -> None:
    memory = [0, 0, 0]

    def copy(source: int, target: int) -> None:
        memory[target] = memory[source]

    pool = StatePool(3, copy)
    live, owner = pool.take(), object()
    for position in (1, 2, 3):
        memory[live] = position
        pool.remember(owner, position, live)
    assert pool.positions(owner) == [2, 3]
    pool.recall(owner, 2, live)
    assert sorted(memory) == [2, 2, 3]
    pool.take()
    assert pool.positions(owner) == [3]
    pool.forget(owner, beyond=2)
    pool.take()
    pool.remember(owner, 9, live)
    assert pool.positions(owner) == []
    with pytest.raises(ContextFullError, match="all 3 states"):
        pool.take()


def test_the_planner_counts_every_state(load: Load) -> None:
    engine = load("lfm2moe")
    assert engine.plan is not None
    states = [layer.kv_bytes for layer in engine.plan.layers if layer.index != 1]
    assert states == [MAX_STATES * 4 * 2 * 64] * 2
