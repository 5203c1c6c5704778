"""Merges several answers into one stream."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TypeAlias

from sharpi.serve.chat.answer_parts import AnswerDeltaOrEnd, AnswerEnd, PromptRequest
from sharpi.serve.chat.answer_reading import answer
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.event_stream import PING, Events

PING_SECONDS = 10.0

Numbered: TypeAlias = tuple[int, AnswerDeltaOrEnd]
Answers: TypeAlias = AsyncGenerator[Numbered | None, None]


def answers(
    host: ModelHost, prompt_requests: Sequence[PromptRequest]
) -> AbstractAsyncContextManager[Answers]:
    """Returns the merged answers to some requests; they end with the context at the latest."""
    return aclosing(merged([answer(host, prompt_request) for prompt_request in prompt_requests]))


async def merged(sources: Sequence[AsyncGenerator[AnswerDeltaOrEnd, None]]) -> Answers:
    """Yields (number of the answer, item) as items come, and None after a while without any.

    The other answers begin after the first item of the first, so that they find its prompt in the
    KV cache. An error of one answer is raised and ends all. The queue for a slow reader holds at
    most the tokens of these answers.
    """
    queue: asyncio.Queue[Numbered | Exception] = asyncio.Queue()
    has_begun = asyncio.Event()
    tasks = [
        asyncio.create_task(_pump(number, source, queue, has_begun))
        for number, source in enumerate(sources)
    ]
    num_open = len(tasks)
    try:
        while num_open:
            item = await _next(queue)
            if isinstance(item, Exception):
                raise item
            yield item
            num_open -= item is not None and isinstance(item[1], AnswerEnd)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _next(queue: "asyncio.Queue[Numbered | Exception]") -> Numbered | Exception | None:
    if not queue.empty():
        return queue.get_nowait()
    try:
        async with asyncio.timeout(PING_SECONDS):
            return await queue.get()
    except TimeoutError:
        return None


async def _pump(
    number: int,
    source: AsyncGenerator[AnswerDeltaOrEnd, None],
    queue: "asyncio.Queue[Numbered | Exception]",
    has_begun: asyncio.Event,
) -> None:
    """Queues the items of one answer; an error is queued too."""
    async with aclosing(source):
        try:
            if number:
                await has_begun.wait()
            async for item in source:
                queue.put_nowait((number, item))
                has_begun.set()
        except Exception as error:
            queue.put_nowait(error)


async def answer_events(
    host: ModelHost,
    prompt_requests: Sequence[PromptRequest],
    events_of: Callable[[int, AnswerDeltaOrEnd], Iterable[bytes]],
    ping: bytes = PING,
) -> Events:
    """Yields the events that `events_of` makes of (number of the answer, item), as items come."""
    async with answers(host, prompt_requests) as items:
        async for numbered in items:
            if numbered is None:
                yield ping
                continue
            for event in events_of(*numbered):
                yield event
