"""Interrupted steps: they end between two layers, and what was computed before stays sound."""

import threading
import time
from collections.abc import Callable

import pytest
from streamed_models import DEMO, decode, story_ids

from sharpi.engine.engine import Engine
from sharpi.settings import GenerationRequest, SamplingParams

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
REQUEST = GenerationRequest(max_tokens=4, ignore_end=True, sampling=SamplingParams(temperature=0))
WAYS = {
    "one thread": {"num_threads": 1},
    "experts in few slots": {"num_threads": 2, "moe_slots": 4},
}


def long_prompt(engine: Engine, count: int) -> list[int]:
    story = story_ids(engine)
    return (story * (count // len(story) + 1))[:count]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_prefill_ends_within_its_batch(load: Load, way: dict[str, int]) -> None:
    options = {"context_size": 1024, "batch_size": 512, "instruction_set": "portable", **way}
    engine = load(DEMO, **options)
    prompt, session = long_prompt(engine, 512), engine.session()
    generation = session.generate(prompt, REQUEST)
    thread = threading.Thread(target=interrupt_in_the_middle, args=(generation,))
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        next(generation)
    thread.join()
    assert generation.num_prefilled == 0
    assert session.tokens == []
    generation.interrupt(wanted=False)
    assert decode(session, prompt[:70]) == decode(load(DEMO, **options), prompt[:70])


def interrupt_in_the_middle(generation: object) -> None:
    while not generation.num_prefilled:  # type: ignore[attr-defined]
        time.sleep(0.001)
    generation.interrupt()  # type: ignore[attr-defined]


def test_the_batches_before_stay_in_the_cache(load: Load) -> None:
    engine = load(DEMO, context_size=4096, batch_size=64)
    prompt, session = long_prompt(engine, 300), engine.session()
    generation = session.generate(prompt, REQUEST)
    steps = iter([False, False, True])

    def step() -> bool:
        generation.interrupt(wanted=next(steps))
        return original()

    original, session._scheduler.step = session._scheduler.step, step  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        next(generation)
    assert session.tokens == prompt[:128]
    assert generation.num_prefilled == 128
    generation.interrupt(wanted=False)
    session._scheduler.step = original  # type: ignore[method-assign]
    again = session.generate(prompt, REQUEST)
    list(again)
    assert again.timings.num_cached_tokens == 128
    assert again.ids == decode(load(DEMO, context_size=4096, batch_size=64), prompt, 4)


@pytest.mark.parametrize("case", ["qwen3next", "granitehybrid", "lfm2moe"])
def test_recurrent_layers_forget_a_state_that_is_not_whole(case: str, load: Load) -> None:
    engine, prompt = load(case), list(range(3, 60))
    session = engine.session()
    generation = session.generate(prompt, REQUEST)
    generation.interrupt()
    with pytest.raises(KeyboardInterrupt):
        next(generation)
    generation.interrupt(wanted=False)
    assert decode(session, prompt, 8) == decode(load(case), prompt, 8)


def test_an_answer_is_interrupted_and_goes_on(load: Load) -> None:
    session = load("qwen3moe").session()
    generation = session.generate([5, 17, 99], REQUEST)
    first = next(generation)
    generation.interrupt()
    with pytest.raises(KeyboardInterrupt):
        list(generation)
    generation.interrupt(wanted=False)
    again = session.generate([5, 17, 99], REQUEST)
    assert "".join(again).startswith(first)
