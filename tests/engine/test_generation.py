"""Continuations: prefix reuse, limits, stops, context, seeds, abandoned generations."""

import time
from collections.abc import Callable

import numpy as np
import pytest

from sharpi.engine.engine import Engine
from sharpi.engine.runner import StepInFlight
from sharpi.errors import ContextFullError, UsageError
from sharpi.settings import GenerationRequest, SamplingParams

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
GREEDY = SamplingParams(temperature=0)
PROMPT = [5, 17, 99, 3, 42]


def request(max_tokens: int = 12, **options: object) -> GenerationRequest:
    options.setdefault("sampling", GREEDY)
    return GenerationRequest(max_tokens=max_tokens, ignore_end=True, **options)  # type: ignore[arg-type]


def test_a_generation_counts_and_ends_at_its_limit(load: Load) -> None:
    generation = load("qwen3moe").session().generate(PROMPT, request())
    start = time.perf_counter()
    text = "".join(generation)
    seconds = time.perf_counter() - start
    assert generation.text == text
    assert len(generation.ids) == 12
    assert generation.finish_reason == "length"
    timings = generation.timings
    assert (timings.num_prompt_tokens, timings.num_generated_tokens) == (5, 12)
    assert timings.decode_tokens_per_second > 0
    assert 0 < timings.first_token_seconds <= seconds


def test_no_tokens_can_be_asked_for(load: Load) -> None:
    generation = load("llama").session().generate(PROMPT, request(0))
    assert list(generation) == []
    assert generation.finish_reason == "length"


def test_greedy_tokens_are_those_of_teacher_forcing(load: Load) -> None:
    engine = load("olmoe")
    generation = engine.session().generate(PROMPT, request(8))
    list(generation)
    logits = engine.logits(np.array([*PROMPT, *generation.ids], np.int32))
    assert logits[len(PROMPT) - 1 : -1].argmax(axis=1).tolist() == generation.ids


def test_a_second_turn_computes_only_what_is_new(load: Load) -> None:
    engine = load("qwen3")
    session = engine.session()
    first = session.generate(PROMPT, request(6))
    list(first)
    longer = [*PROMPT, *first.ids, 7, 8]
    second = session.generate(longer, request(6))
    list(second)
    assert second.timings.num_cached_tokens == len(PROMPT) + 5  # the last token was never run
    assert second.timings.num_prompt_tokens == 3
    fresh = engine.session().generate(longer, request(6))
    list(fresh)
    assert fresh.ids == second.ids


def test_another_prompt_replaces_what_differs(load: Load) -> None:
    engine = load("qwen3")
    session = engine.session()
    list(session.generate(PROMPT, request(6)))
    other = session.generate([*PROMPT[:3], 50, 51], request(6))
    list(other)
    assert other.timings.num_cached_tokens == 3
    fresh = engine.session().generate([*PROMPT[:3], 50, 51], request(6))
    list(fresh)
    assert fresh.ids == other.ids


def test_an_abandoned_generation_leaves_the_session_sound(load: Load) -> None:
    engine = load("llama")
    session = engine.session()
    generation = session.generate(PROMPT, request(50))
    next(generation)
    generation.close()
    again = session.generate(PROMPT, request(6))
    list(again)
    fresh = engine.session().generate(PROMPT, request(6))
    list(fresh)
    assert again.ids == fresh.ids


@pytest.mark.parametrize("case", ["llama", "lfm2moe"])
@pytest.mark.parametrize("steps", [1, 4])
def test_an_interrupted_step_leaves_the_session_sound(
    case: str, steps: int, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step was computed when Ctrl-C came, but none of its tokens is recorded."""
    engine = load(case)
    session, counts = engine.session(), iter(range(1, 100))
    begin = engine.runner.begin

    def interrupted(*arguments: object, **options: object) -> StepInFlight:
        begun = begin(*arguments, **options)  # type: ignore[arg-type]
        if next(counts) == steps:
            raise KeyboardInterrupt
        return begun

    with monkeypatch.context() as patch:
        patch.setattr(engine.runner, "begin", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(session.generate(PROMPT, request(50)))
    again = session.generate([*PROMPT, 7, 8], request(6))
    list(again)
    fresh = engine.session().generate([*PROMPT, 7, 8], request(6))
    list(fresh)
    assert again.ids == fresh.ids
    assert again.timings.num_cached_tokens == (0 if steps == 1 or case == "lfm2moe" else 5)


def test_edited_history_is_cut_within_a_page_without_another_page(load: Load) -> None:
    """The whole context is one page, so no page is free for a copy of its beginning."""
    engine = load("qwen3", context_size=64)
    session = engine.session()
    list(session.generate(list(range(5, 55)), request(8)))
    edited = session.generate([*range(5, 7), 90, 91], request(6))
    list(edited)
    assert edited.timings.num_cached_tokens == 2
    fresh = engine.session().generate([*range(5, 7), 90, 91], request(6))
    list(fresh)
    assert fresh.timings.num_cached_tokens == 0
    assert fresh.ids == edited.ids


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_same_seed_gives_the_same_tokens_on_any_threads(threads: int, load: Load) -> None:
    sampling = SamplingParams(seed=11, temperature=1.2)

    def draw(num_threads: int) -> list[int]:
        engine = load("mixtral", num_threads=num_threads)
        generation = engine.session().generate(PROMPT, request(20, sampling=sampling))
        list(generation)
        return generation.ids

    assert draw(threads) == draw(2)


def test_a_stop_string_cuts_the_text(load: Load) -> None:
    engine = load("qwen2")
    whole = engine.session().generate(PROMPT, request(12))
    text = "".join(whole)
    stop = text[4:7]
    cut = engine.session().generate(PROMPT, request(12, stop=(stop,)))
    assert "".join(cut) == text[: text.index(stop)]
    assert cut.finish_reason == "stop"


def test_an_end_token_ends(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = load("llama")
    whole = engine.session().generate(PROMPT, request(6))
    list(whole)
    end = whole.ids[3]
    monkeypatch.setattr(type(engine.tokenizer), "end_ids", frozenset({end}))
    ended = engine.session().generate(PROMPT, GenerationRequest(max_tokens=6, sampling=GREEDY))
    list(ended)
    assert ended.finish_reason == "stop"
    assert ended.ids == whole.ids[: whole.ids.index(end)]


def test_a_full_context_stops_clearly(load: Load) -> None:
    generation = load("llama", context_size=16).session().generate(PROMPT, request(-1))
    list(generation)
    assert generation.finish_reason == "context"
    assert len(generation.ids) == 16 - len(PROMPT) + 1


def test_a_prompt_that_does_not_fit_says_so(load: Load) -> None:
    session = load("llama", context_size=4).session()
    with pytest.raises(ContextFullError, match=r"5 tokens > 4 maximum.*-c"):
        list(session.generate(PROMPT, request()))
    assert session.tokens == []


def test_a_context_shift_continues_as_from_a_fresh_prompt(load: Load) -> None:
    engine = load("llama", context_size=16, context_shift=True)
    session = engine.session()
    generation = session.generate(PROMPT, request(40))
    list(generation)
    assert len(generation.ids) == 40
    assert generation.finish_reason == "length"
    # What the cache holds now is a prompt like any other.
    kept = list(session.tokens)
    session.reset()
    assert len(kept) <= 16
    assert kept[0] == PROMPT[0]
    following = engine.session().generate(kept, request(1))
    list(following)
    assert following.ids == [generation.ids[-1]]


def test_an_empty_prompt_is_refused(load: Load) -> None:
    with pytest.raises(UsageError, match="empty"):
        load("llama").session().generate([], request())


@pytest.mark.parametrize("ids", [[-1], [288], [1, 2, 100000]])
def test_ids_outside_the_vocabulary_are_refused(ids: list[int], load: Load) -> None:
    engine = load("llama")
    with pytest.raises(UsageError, match=r"0\.\.287"):
        engine.logits(np.array(ids, np.int32))
    with pytest.raises(UsageError, match=r"0\.\.287"):
        engine.session().generate(ids, request())


def test_logits_of_no_ids_are_refused(load: Load) -> None:
    with pytest.raises(UsageError, match="at least one"):
        load("llama").logits(np.array([], np.int32))
