"""ModelHost as requests use it: answers, limits, idling, failures and shutdown."""

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from answer_items import items_of

from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.sampling.generation_state import FinishInfo, TextDelta
from sharpi.errors import ContextFullError, ModelFileError
from sharpi.resources import demo_model
from sharpi.serve.chat.chat_model import ChatModels
from sharpi.serve.host.answer_group import AnswerRequest
from sharpi.serve.host.model_host import ModelHost, ModelHostSettings
from sharpi.serve.http.errors import ApiError
from sharpi.settings import GenerationRequest, RunConfig, SamplingParams

pytestmark = pytest.mark.native

GREEDY = GenerationRequest(max_tokens=8, sampling=SamplingParams(temperature=0))
ENDLESS = GenerationRequest(
    max_tokens=1500, ignore_end=True, sampling=SamplingParams(temperature=0)
)
LONG = GenerationRequest(max_tokens=400, ignore_end=True, sampling=SamplingParams(temperature=0))


def load() -> Engine:
    return load_engine(RunConfig(demo_model(), num_parallel=2))


@pytest.fixture
def make_host() -> Iterator[Callable[..., ModelHost]]:
    hosts: list[ModelHost] = []

    def make(load: Callable[[], Engine] = load, **settings: Any) -> ModelHost:
        given = {"max_parallel": 2, "max_waiting": 2} | settings
        hosts.append(ModelHost(load, ModelHostSettings("demo", **given)))
        hosts[-1].start()
        return hosts[-1]

    yield make
    for host in hosts:
        host.close()


def run(test: Awaitable[Any]) -> Any:
    async def limited() -> Any:
        return await asyncio.wait_for(test, 120)

    return asyncio.run(limited())


async def ids_of(host: ModelHost, text: str = "Once upon a time") -> list[int]:
    tokenizer = (await host.ready()).engine.tokenizer
    return tokenizer.encode(text, add_bos=tokenizer.add_bos, parse_special=True)


async def answer(host: ModelHost, request: GenerationRequest = GREEDY) -> tuple[str, FinishInfo]:
    items = [item async for item in items_of(host, await ids_of(host), request)]
    finish_info = items.pop()
    assert isinstance(finish_info, FinishInfo)
    return "".join(item.text for item in items if isinstance(item, TextDelta)), finish_info


async def num_busy(host: ModelHost) -> int:
    return (
        await host.inspect_if_loaded(lambda m: m.scheduler.num_running + m.scheduler.num_waiting)
        or 0
    )


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + 90
    while not await holds():
        assert time.monotonic() < deadline, "did not happen in time"
        await asyncio.sleep(0.005)


def slow_down(host: ModelHost, seconds: float) -> None:
    """Makes steps take 0.1 s, so that ENDLESS takes longer than `until` waits."""
    loaded = host._thread.model.loaded
    assert loaded is not None
    scheduler: Any = loaded.scheduler
    step = scheduler.step

    def slow_step() -> bool:
        time.sleep(seconds)
        return bool(step())

    scheduler.step = slow_step


def test_an_answer(make_host: Callable[..., ModelHost]) -> None:
    text, finish_info = run(answer(make_host()))
    with load() as engine:
        ids = engine.tokenizer.encode("Once upon a time", add_bos=True, parse_special=True)
        alone = "".join(engine.session().generate(ids, GREEDY))
    assert text == alone
    assert finish_info.reason == "length"


@pytest.mark.slow
def test_answers_beside_others_are_those_alone(make_host: Callable[..., ModelHost]) -> None:
    host = make_host()

    async def test() -> None:
        alone, _ = await answer(host, LONG)
        together = await asyncio.gather(*(answer(host, LONG) for _ in range(4)))
        assert [text for text, _ in together] == [alone] * 4

    run(test())


class TestLimits:
    def test_too_many_are_refused_and_the_others_answered(
        self, make_host: Callable[..., ModelHost]
    ) -> None:
        host = make_host()

        async def test() -> None:
            results = await asyncio.gather(
                *(answer(host) for _ in range(7)), return_exceptions=True
            )
            refused = [each for each in results if isinstance(each, ApiError)]
            assert [error.status for error in refused] == [429] * 3
            assert len({each[0] for each in results if isinstance(each, tuple)}) == 1
            await answer(host)

        run(test())

    def test_a_prompt_that_does_not_fit(self, make_host: Callable[..., ModelHost]) -> None:
        host = make_host()

        async def test() -> None:
            with pytest.raises(ContextFullError):
                await anext(items_of(host, [1] * 1000, GREEDY))
            assert (await answer(host))[1].reason == "length"

        run(test())

    def test_models_have_names(self, make_host: Callable[..., ModelHost]) -> None:
        host = make_host(aliases=("other",))
        host.require_model("demo")
        host.require_model("other")
        with pytest.raises(ApiError, match="'third' does not exist"):
            host.require_model("third")


def test_many_answers_of_one_request_take_turns(make_host: Callable[..., ModelHost]) -> None:
    host = make_host()

    async def test() -> None:
        asked = [AnswerRequest(await ids_of(host), GREEDY)] * 40
        group, ends = host.answers(asked), []
        while group.is_open:
            numbered = await group.next()
            assert await num_busy(host) <= 2
            if numbered is not None and isinstance(numbered[1], FinishInfo):
                ends.append(numbered[0])
        group.close()
        assert sorted(ends) == list(range(40))

    run(test())


class TestCancelling:
    def test_closing_ends_the_work(self, make_host: Callable[..., ModelHost]) -> None:
        host = make_host()

        async def test() -> None:
            slow_down(host, 0.1)
            items = items_of(host, await ids_of(host), ENDLESS)
            await anext(items)
            assert await num_busy(host) == 1
            await items.aclose()
            await until(lambda: _none_busy(host))

        run(test())

    def test_so_does_cancelling_who_waits(self, make_host: Callable[..., ModelHost]) -> None:
        host = make_host()

        async def test() -> None:
            slow_down(host, 0.1)
            tasks = [asyncio.create_task(answer(host, ENDLESS)) for _ in range(4)]
            await until(lambda: _two_run_and_two_wait(host))
            for task in tasks:
                task.cancel()
            await until(lambda: _none_busy(host))
            assert (await answer(host))[1].reason == "length"

        run(test())

    def test_cutting_ends_those_that_have_begun_and_refuses_the_others(
        self, make_host: Callable[..., ModelHost]
    ) -> None:
        host = make_host()

        async def test() -> None:
            slow_down(host, 0.1)
            tasks = [asyncio.create_task(answer(host, ENDLESS)) for _ in range(4)]
            await until(lambda: _two_run_and_two_wait(host))
            host.cancel_all()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            refused = [each for each in ends if isinstance(each, ApiError)]
            assert [error.status for error in refused] == [503, 503]
            reasons = [each[1].reason for each in ends if isinstance(each, tuple)]
            assert reasons == ["cancelled", "cancelled"]
            with pytest.raises(ApiError, match="stopping"):
                await answer(host)

        run(test())


async def _two_run_and_two_wait(host: ModelHost) -> bool:
    counts = await host.inspect_if_loaded(
        lambda m: (m.scheduler.num_running, m.scheduler.num_waiting)
    )
    return counts == (2, 2)


async def _none_busy(host: ModelHost) -> bool:
    return await num_busy(host) == 0


class TestIdling:
    def test_memory_and_file_are_given_back_and_come_again(
        self, make_host: Callable[..., ModelHost], tmp_path: Path
    ) -> None:
        own = Path(shutil.copy(demo_model(), tmp_path / "own.gguf"))
        host = make_host(lambda: load_engine(RunConfig(own)), max_parallel=1, idle_seconds=0.2)

        async def is_unmapped() -> bool:
            return not is_mapped(own)

        async def test() -> None:
            text, _ = await answer(host)
            assert is_mapped(own)
            await until(lambda: _is_idle(host))
            await until(is_unmapped)
            assert await host.inspect_if_loaded(lambda model: model) is None
            again = await asyncio.gather(*(answer(host) for _ in range(3)))
            assert [each for each, _ in again] == [text] * 3
            assert host.state == "loaded"

        run(test())

    def test_what_is_kept_of_the_vocabulary_does_not_keep_the_file(
        self, make_host: Callable[..., ModelHost], tmp_path: Path
    ) -> None:
        own = Path(shutil.copy(demo_model(), tmp_path / "own.gguf"))
        host = make_host(lambda: load_engine(RunConfig(own)), max_parallel=1, idle_seconds=0.2)
        chats = ChatModels(host)

        async def is_unmapped() -> bool:
            return not is_mapped(own)

        async def test() -> None:
            grammars = (await chats.get()).grammars
            assert is_mapped(own)
            await until(is_unmapped)
            assert (await chats.get()).grammars is grammars

        run(test())

    def test_not_while_an_answer_is_under_way(self, make_host: Callable[..., ModelHost]) -> None:
        host = make_host(idle_seconds=0.05)

        async def test() -> None:
            slow_down(host, 0.1)
            assert (await answer(host))[1].reason == "length"

        run(test())

    def test_not_while_a_request_is_prepared(self, make_host: Callable[..., ModelHost]) -> None:
        host = make_host(idle_seconds=0.05)

        async def test() -> None:
            with host.admitted({"client": ("127.0.0.1", 1)}):
                await host.ready()
                await asyncio.sleep(0.5)
                assert host.state == "loaded"
            await until(lambda: _is_idle(host))

        run(test())

    def test_a_load_that_fails_is_an_error_and_the_next_may_work(
        self, make_host: Callable[..., ModelHost]
    ) -> None:
        fails: list[bool] = []

        def sometimes() -> Engine:
            if fails:
                raise ModelFileError("the file is gone")
            return load()

        host = make_host(sometimes, idle_seconds=0.1)

        async def test() -> None:
            await until(lambda: _is_idle(host))
            fails.append(True)
            with pytest.raises(ApiError, match="cannot be loaded"):
                await host.ready()
            with pytest.raises(ApiError, match="cannot be loaded"):
                await anext(items_of(host, [1, 2], GREEDY))
            fails.clear()
            assert (await answer(host))[1].reason == "length"

        run(test())


async def _is_idle(host: ModelHost) -> bool:
    return host.state == "idle"


def is_mapped(file: Path) -> bool:
    """Returns whether this process has any part of the file mapped."""
    return str(file) in Path("/proc/self/maps").read_text("utf-8")


def test_a_step_that_fails_costs_its_answers_and_no_more(
    make_host: Callable[..., ModelHost],
) -> None:
    host = make_host()

    async def test() -> None:
        loaded = await host.ready()
        scheduler: Any = loaded.scheduler

        def fail() -> bool:
            raise ValueError("bug")

        items = items_of(host, await ids_of(host), LONG)
        await anext(items)
        scheduler.step = fail
        with pytest.raises(ValueError, match="bug"):
            [item async for item in items]
        assert (await answer(host))[1].reason == "length"

    run(test())


def test_a_first_load_that_fails_is_raised_and_ends_the_thread() -> None:
    def fail() -> Engine:
        raise ModelFileError("no such file")

    host = ModelHost(fail, ModelHostSettings("demo"))
    with pytest.raises(ModelFileError):
        host.start()
    assert not host._thread._thread.is_alive()


def test_closing_twice_is_closing_once(make_host: Callable[..., ModelHost]) -> None:
    host = make_host()
    host.close()
    host.close()
    with pytest.raises(ApiError, match="stopping"):
        host._thread.load().result(60)
