"""AnswerGroup: one queue for all answers to a request."""

import asyncio

import pytest

from sharpi.engine.sampling.generation_state import FinishInfo, TextDelta
from sharpi.serve.host import answer_group
from sharpi.serve.host.answer_group import AnswerGroup, AnswerRequest, QueuedAnswer
from sharpi.serve.host.metrics import Metrics
from sharpi.serve.http.errors import ApiError
from sharpi.settings import GenerationRequest


class Thread:
    """An engine's thread that only records what is begun."""

    def __init__(self) -> None:
        self.begun: list[QueuedAnswer] = []
        self.cancelled: list[QueuedAnswer] = []

    def submit(self, answer: QueuedAnswer) -> None:
        self.begun.append(answer)

    def cancel(self, answer: QueuedAnswer) -> None:
        self.cancelled.append(answer)


def group_of(num: int, thread: Thread, max_parallel: int = 2) -> AnswerGroup:
    asked = [AnswerRequest([1], GenerationRequest())] * num
    ways = thread.submit, thread.cancel
    return AnswerGroup(asked, *ways, Metrics(), max_parallel, lambda group: None)


def test_nothing_for_a_while_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_group, "PING_SECONDS", 0.01)

    async def test() -> None:
        thread = Thread()
        group = group_of(1, thread)
        assert await group.next() is None
        thread.begun[0].put(TextDelta("a"))
        assert await group.next() == (0, TextDelta("a"))

    asyncio.run(test())


def test_a_few_run_at_once_and_the_others_follow() -> None:
    async def test() -> None:
        thread = Thread()
        group = group_of(5, thread)
        assert [each.number for each in thread.begun] == [0]
        thread.begun[0].put(TextDelta("a"))
        await group.next()
        assert [each.number for each in thread.begun] == [0, 1]
        thread.begun[0].put(FinishInfo("stop"))
        await group.next()
        group.end(1)
        assert [each.number for each in thread.begun] == [0, 1, 2, 3]
        assert [each.number for each in thread.cancelled] == [1]
        group.close()
        assert not group.is_open
        assert all(each.is_closed for each in thread.begun[1:])

    asyncio.run(test())


def test_cutting_ends_what_has_begun_and_then_refuses_what_has_not() -> None:
    async def test() -> None:
        thread = Thread()
        group = group_of(3, thread)
        thread.begun[0].put(TextDelta("a"))
        await group.next()
        group.cancel_all()
        assert await group.next() == (0, FinishInfo("cancelled"))
        with pytest.raises(ApiError, match="stopping") as caught:
            await group.next()
        assert caught.value.status == 503

    asyncio.run(test())
