"""Several answers as one stream of what comes next from any of them."""

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
    """The answers to some questions, merged; they end with the context at the latest."""
    return aclosing(merged([answer(host, prompt_request) for prompt_request in prompt_requests]))


async def merged(sources: Sequence[AsyncGenerator[AnswerDeltaOrEnd, None]]) -> Answers:
    """(number of the answer, item) in the order they come; None where nothing came for a while.

    The others begin once the first has got going, so that they find its prompt in the KV cache.
    An error of one is raised and ends all. What waits here for a slow reader is at most the
    answers' own tokens.
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
    """Hands one answer's items on; a failure is an item, too."""
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
    """What `events_of` makes of (number of the answer, item), as the items come."""
    async with answers(host, prompt_requests) as items:
        async for numbered in items:
            if numbered is None:
                yield ping
                continue
            for event in events_of(*numbered):
                yield event
