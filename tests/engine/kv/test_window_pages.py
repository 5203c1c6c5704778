"""Layers with windows keep the pages of their window; the bits are those of keeping everything."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from remote_model import remote_model
from scheduled import alone, asked, assert_nothing_is_left, finish, submit

from sharpi.engine import settings
from sharpi.engine.engine import Engine
from sharpi.engine.kv.window_pages import WindowPages, window_pages, windows_of
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.system.memory import ReturnableMemory

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
FAMILIES = ("gpt-oss", "gemma3", "gemma4-e2b", "llama4", "afmoe")  # windows of 8 positions
OPTIONS = {"context_size": 1024, "batch_size": 64, "num_parallel": 2}


def ids(count: int, seed: int = 1) -> list[int]:
    return np.random.default_rng(seed).integers(3, 280, count).tolist()


@pytest.fixture
def load_whole(load: Load, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Loads engines of which all layers keep everything."""

    def load_one(model: str, **options: object) -> Engine:
        with monkeypatch.context() as patch:
            patch.setattr(settings, "window_pages", lambda *_: 0)
            return load(model, **options)

    return load_one


def window_rows(engine: Engine) -> list[np.ndarray]:
    """Returns which pages have anything in each layer with windows, (pages,) each."""
    cache = engine.runner.parts[0].cache  # type: ignore[attr-defined]
    return [cache.layers[layer].any(axis=1) for layer in windows_of(engine.model_config)]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_memory_of_a_long_text(family: str, load: Load, load_whole: Load) -> None:
    text = np.array(ids(900), np.int32)
    engine, whole = load(family, **OPTIONS), load_whole(family, **OPTIONS)
    limit = engine.runner.settings.window_pages
    assert 0 < limit < engine.runner.pages.size
    assert (engine.logits(text) == whole.logits(text)).all()
    session = engine.session()
    list(session.generate(text.tolist(), asked(8)))
    assert len(engine.runner.windows._present) == limit
    assert all(rows.sum() == limit for rows in window_rows(engine))
    assert whole.runner.settings.window_pages == 0


@pytest.mark.parametrize("kind", ["f16", "q8_0"])
def test_requests_that_share_beginnings_are_as_alone(
    kind: str, load: Load, load_whole: Load
) -> None:
    options = OPTIONS | {"kv_type": kind}
    engine, whole = load("gpt-oss", **options), load_whole("gpt-oss", **options)
    start = ids(300)
    prompts = [start, [*start, *ids(200, 2)], start[:250], [*start, *ids(90, 3)], start]
    expected = [alone(whole, each, asked()) for each in prompts]
    scheduler = Scheduler(engine, 2)
    for _ in range(2):
        heard = [submit(scheduler, each, asked()) for each in prompts]
        finish(scheduler)
        assert [(each.text, each.ids) for each in heard] == expected
    assert len(engine.runner.windows._present) <= engine.runner.settings.window_pages
    assert_nothing_is_left(scheduler, engine)
    assert len(engine.runner.windows._present) == 0


def test_the_next_turn_goes_on_where_the_last_one_ended(load: Load, load_whole: Load) -> None:
    engine = load("gemma3", **OPTIONS)
    session = engine.session()
    first = session.generate(ids(700), asked(8))
    list(first)
    longer = [*ids(700), *first.ids, *ids(20, 4)]
    second = session.generate(longer, asked(8))
    text = "".join(second)
    assert second.timings.num_cached_tokens >= 700
    assert (text, second.ids) == alone(load_whole("gemma3", **OPTIONS), longer, asked(8))
    branch = [*ids(200), *ids(30, 5)]  # that far back nothing is left
    third = session.generate(branch, asked(8))
    text = "".join(third)
    assert third.timings.num_cached_tokens == 0
    assert (text, third.ids) == alone(load_whole("gemma3", **OPTIONS), branch, asked(8))


def test_a_saved_slot_goes_on_and_has_no_more_than_it_had(load: Load, tmp_path: Path) -> None:
    engine, path = load("gpt-oss", **OPTIONS), tmp_path / "slot"
    prompt = ids(500)
    scheduler = Scheduler(engine, 1)
    (first,) = [submit(scheduler, prompt, asked())]
    finish(scheduler)
    saved, _ = scheduler.slots.save(0, path, b"k" * 16)
    again = load("gpt-oss", **OPTIONS)
    restored = Scheduler(again, 1)
    assert restored.slots.restore(0, path, b"k" * 16)[0] == saved > 490
    assert len(again.runner.windows._present) <= again.runner.settings.window_pages
    longer = [*prompt, *first.ids[:3], *ids(9, 6)]
    heard = submit(restored, longer, asked())
    finish(restored)
    assert heard.finish_info.timings.num_cached_tokens >= 500
    assert (heard.text, heard.ids) == alone(load("gpt-oss", **OPTIONS), longer, asked())


def test_a_prompt_cache_keeps_windows_alone(load: Load, tmp_path: Path) -> None:
    engine, plain = load("gpt-oss", **OPTIONS, prompt_cache=tmp_path), load("qwen3moe")
    assert engine.runner.settings.window_pages == window_pages(engine.config, engine.model_config)
    assert engine.runner.settings.window_pages > 0
    assert window_pages(plain.config, plain.model_config) == 0


def test_layers_of_other_machines_drop_the_same_pages(load: Load, load_whole: Load) -> None:
    prompts = [ids(600), [*ids(300), *ids(250, 2)], ids(550)]
    whole = load_whole("gpt-oss", **OPTIONS)
    expected = [alone(whole, each, asked()) for each in prompts]
    engine = load("gpt-oss", **OPTIONS)
    far = remote_model(engine, 2)
    scheduler = Scheduler(far, 2)  # type: ignore[arg-type]
    heard = [submit(scheduler, each, asked()) for each in prompts]
    finish(scheduler)
    assert [(each.text, each.ids) for each in heard] == expected
    submit(scheduler, ids(9), asked(1))  # by now all drops have come
    finish(scheduler)
    windows, own, late = far.runner.windows, far.runner.parts[0], far.remote.part
    assert 0 < len(windows._present) <= engine.runner.settings.window_pages
    for part in (own, late):
        layers = part.cache.layers.keys() & windows_of(engine.model_config).keys()
        assert layers
        for layer in layers:
            assert part.cache.layers[layer].any(axis=1).sum() <= len(windows._present) + 1


def test_what_was_left_longest_ago_is_dropped_first() -> None:
    dropped: list[tuple[int, bool, bool]] = []
    windows = WindowPages(100, 3, lambda *each: dropped.append(each))
    for page in (4, 5, 6):
        windows.hold(page)
    windows.release(5)
    windows.release(4)
    assert dropped == []
    windows.hold(7)
    windows.hold(4)
    assert dropped == [(5, False, False)]
    windows.hold(8)  # more than the limit, since all are needed
    assert len(windows._present) == 4
    windows.release(7)
    assert dropped[1:] == [(7, False, False)]
    windows.drop_page(6)
    assert dropped[2:] == [(6, True, True)]
    assert windows.first_needed(64) == 0
    assert windows.first_needed(300) == 3
    assert windows.usable([4, 8], 110) == 110
    assert windows.usable([4, 6], 110) == 64
    assert windows.usable([6, 4], 110) == 0


def test_memory_is_zero_once_given_back_and_its_neighbours_stay() -> None:
    memory = ReturnableMemory(5 * 4096)
    memory.array[:] = 1
    memory.give_back(5000, 15000)
    assert memory.array.reshape(5, -1).any(axis=1).tolist() == [True, True, False, True, True]
    memory.give_back(5000, 15000, widens=(True, False))
    assert memory.array.reshape(5, -1).any(axis=1).tolist() == [True, False, False, True, True]
    memory.give_back(9000, 5 * 4096, widens=(False, True))
    assert memory.array.reshape(5, -1).any(axis=1).tolist() == [True, False, False, False, False]
