"""Computed pages stay: turns and shared beginnings, copies of half pages, evictions."""

from collections.abc import Callable

import numpy as np
import pytest
from scheduled import alone, asked, assert_nothing_is_left, finish, submit

from sharpi.engine.engine import Engine
from sharpi.engine.kv.pages import CachedPage
from sharpi.engine.prompt_cache.prompt_cache import link_before
from sharpi.engine.prompt_cache.record import page_links
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
IDS = np.random.default_rng(8).integers(3, 280, 2000).tolist()
MODELS = ["qwen3moe", "deepseek3", "qwen3next", "granitehybrid"]
RECURRENT = ["qwen3next", "granitehybrid"]


def run(scheduler: Scheduler, prompt: list[int], max_tokens: int) -> tuple[list[int], int]:
    """Returns an answer's tokens, and the number of prompt tokens found in the cache."""
    heard = submit(scheduler, prompt, asked(max_tokens))
    finish(scheduler)
    timings = heard.finish_info.timings
    assert timings.num_cached_tokens + timings.num_prompt_tokens == len(prompt)
    return heard.ids, timings.num_cached_tokens


@pytest.mark.parametrize("model", MODELS)
def test_turns_of_several_conversations_compute_only_what_is_new(model: str, load: Load) -> None:
    engine = load(model, num_parallel=2, context_size=512, batch_size=128)
    scheduler = Scheduler(engine, 2)
    chats = [IDS[:70], IDS[100:133], IDS[200:328]]
    for turn in range(3):
        for number, chat in enumerate(chats):
            expected = alone(engine, chat, asked(9))[1]
            ids, found = run(scheduler, chat, 9)
            assert ids == expected
            if turn:
                assert found == len(chat) - 10  # the last token was never computed, nine are new
            chat += [*ids, *IDS[900 + 10 * number : 909 + 10 * number]]
    assert_nothing_is_left(scheduler, engine)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["qwen3moe", "gemma3"])
@pytest.mark.parametrize("shared", [3, 40, 64, 100, 128, 150])
def test_a_shared_beginning_is_computed_once(model: str, shared: int, load: Load) -> None:
    engine = load(model, num_parallel=2, context_size=512)
    scheduler = Scheduler(engine, 2)
    run(scheduler, IDS[:200], 5)
    other = [*IDS[:shared], *IDS[300:330]]
    expected = alone(engine, other, asked(9))[1]
    assert run(scheduler, other, 9) == (expected, shared if shared > 3 else 0)
    first = [*IDS[:200], 7]
    assert run(scheduler, first, 4) == (alone(engine, first, asked(4))[1], 200)
    assert_nothing_is_left(scheduler, engine)


@pytest.mark.parametrize("model", RECURRENT)
def test_a_third_prompt_with_the_same_beginning_finds_a_state(model: str, load: Load) -> None:
    engine = load(model, num_parallel=2, context_size=512)
    scheduler = Scheduler(engine, 2)
    prompts = [[*IDS[:150], *IDS[at : at + 20]] for at in (300, 400, 500)]
    expected = [alone(engine, prompt, asked(6))[1] for prompt in prompts]
    answers = [run(scheduler, prompt, 6) for prompt in prompts]
    assert [ids for ids, _ in answers] == expected
    assert [found for _, found in answers] == [0, 0, 150]
    assert_nothing_is_left(scheduler, engine)


@pytest.mark.parametrize("model", RECURRENT)
def test_the_end_of_a_long_prompt_may_be_rewritten(model: str, load: Load) -> None:
    scheduler = Scheduler(engine := load(model, num_parallel=1, context_size=512), 1)
    run(scheduler, IDS[:300], 5)
    other = [*IDS[:290], 5, 6]
    assert run(scheduler, other, 5) == (alone(engine, other, asked(5))[1], 284)


def test_the_same_prompt_at_the_same_time_is_computed_once(load: Load) -> None:
    engine = load("olmoe", num_parallel=4, context_size=256)
    expected = alone(engine, IDS[:150], asked(8))[1]
    scheduler = Scheduler(engine, 4)
    heard = [submit(scheduler, IDS[:150], asked(8)) for _ in range(4)]
    scheduler.step()
    assert scheduler.num_prefill_tokens <= 512
    finish(scheduler)
    assert [each.ids for each in heard] == [expected] * 4
    assert_nothing_is_left(scheduler, engine)


@pytest.mark.parametrize("model", ["qwen3moe", "qwen3next"])
def test_a_beginning_is_shared_while_its_first_owner_still_runs(model: str, load: Load) -> None:
    engine = load(model, num_parallel=2, context_size=512)
    expected = [alone(engine, IDS[:170] + tail, asked(40))[1] for tail in ([], [9, 8])]
    scheduler = Scheduler(engine, 2)
    first = submit(scheduler, IDS[:170], asked(40))
    for _ in range(5):
        scheduler.step()
    second = submit(scheduler, [*IDS[:170], 9, 8], asked(40))
    finish(scheduler)
    assert [first.ids, second.ids] == expected
    if model == "qwen3moe":
        assert second.finish_info.timings.num_cached_tokens == 170
    assert_nothing_is_left(scheduler, engine)


def test_the_least_recently_used_conversation_goes_first(load: Load) -> None:
    engine = load("llama", num_parallel=1, context_size=320)  # 5 pages
    scheduler = Scheduler(engine, 1)
    a, b, c = IDS[:100], IDS[200:300], IDS[400:500]
    run(scheduler, a, 2)
    run(scheduler, b, 2)
    assert scheduler.cache.num_evictable == 4
    assert run(scheduler, [*a, 5], 2)[1] == 100
    run(scheduler, c, 2)  # takes the free page, and one of b's
    assert run(scheduler, [*a, 5, 6], 2)[1] == 101
    assert run(scheduler, [*b, 5], 2)[1] == 0
    assert_nothing_is_left(scheduler, engine)


def test_what_is_kept_makes_room_for_lone_sequences(load: Load) -> None:
    engine = load("qwen3next", num_parallel=1, context_size=192)
    scheduler = Scheduler(engine, 1)
    run(scheduler, IDS[:150], 2)
    assert scheduler.cache.num_evictable == 3
    alone(engine, IDS[200:380], asked(3))
    assert scheduler.cache.num_evictable < 3
    assert_nothing_is_left(scheduler, engine)


@pytest.mark.parametrize("model", ["qwen3moe", "qwen3next"])
def test_the_youngest_gives_way_and_comes_back_the_same(model: str, load: Load) -> None:
    engine = load(model, num_parallel=3, context_size=256, batch_size=64)
    prompts = [IDS[at : at + 60] for at in (0, 100, 200)]
    expected = [alone(engine, p, asked(150))[1] for p in prompts]
    held = [engine.runner.pages.allocate() for _ in range(engine.runner.pages.size - 6)]
    scheduler = Scheduler(engine, 3)
    heard = [submit(scheduler, p, asked(150)) for p in prompts]
    fewest = 3
    while scheduler.step():
        fewest = min(fewest, scheduler.num_running) if not heard[0].finish_infos else fewest
    assert fewest < 3
    assert [each.ids for each in heard] == expected
    assert [each.finish_info.timings.num_prompt_tokens for each in heard] == [60] * 3
    engine.runner.pages.free(*(page for page in held if page is not None))
    assert_nothing_is_left(scheduler, engine)


def test_pages_that_others_hold_for_good_end_an_answer(load: Load) -> None:
    engine = load("llama", num_parallel=2, context_size=256)
    held = [engine.runner.pages.allocate() for _ in range(engine.runner.pages.size - 1)]
    scheduler = Scheduler(engine, 2)
    heard = submit(scheduler, IDS[:60], asked(100))
    finish(scheduler)
    assert heard.finish_info.reason == "error"
    assert "KV pages" in str(heard.finish_info.error)
    assert 1 <= len(heard.ids) <= 5
    engine.runner.pages.free(*(page for page in held if page is not None))
    assert_nothing_is_left(scheduler, engine)


def test_links_before_pages_are_kept() -> None:
    """A page's link covers the whole text before it, also where a second text branches off."""
    page = root = CachedPage(-1, None)
    tokens = [7 * i % 311 for i in range(5 * PAGE_POSITIONS)]
    pages = []
    for number in range(5):
        page = CachedPage(number, page)
        page.tokens = tokens[number * PAGE_POSITIONS : (number + 1) * PAGE_POSITIONS]
        pages.append(page)
    links = page_links(tokens)
    assert link_before(pages[2]) == links[2]
    assert [each.link for each in pages[:3]] == [None, *links[1:3]]
    assert [link_before(each) for each in pages] == links[:5]
    other = CachedPage(9, pages[1])
    assert link_before(other) == links[2]
    assert link_before(CachedPage(10, root)) == links[0]
