"""AnswerQueue carries the answers to one request from the engine's thread to the event loop.

The engine never waits for a reader: items are queued, at most as many as there are tokens.
"""

import asyncio
import contextlib
from typing import TypeAlias

from msgspec import Struct

from sharpi.config import GenerationRequest
from sharpi.constraints.constraint import Constraint
from sharpi.engine.sampling.text_delta import FinishInfo, PrefillProgress, TextDelta
from sharpi.serve.host.metrics import AnswerMeter

Item: TypeAlias = TextDelta | PrefillProgress | FinishInfo
Numbered: TypeAlias = tuple[int, Item]


class AnswerRequest(Struct, frozen=True, eq=False):
    """The engine's part of the request for one answer."""

    prompt_ids: list[int]
    request: GenerationRequest
    constraint: Constraint | None = None
    wants_progress: bool = False  # of the prompt, as items


class AnswerQueue:
    """The only queue of a request; created on the event loop, and any thread may call `put`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[Numbered] = asyncio.Queue()

    def put(self, number: int, item: Item) -> None:
        """Queues an item of answer `number`; drops it if the event loop is closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._items.put_nowait, (number, item))

    async def next(self, seconds: float) -> Numbered | None:
        """Waits for the next item of any answer; returns None if none comes in time."""
        if not self._items.empty():
            return self._items.get_nowait()
        try:
            async with asyncio.timeout(seconds):
                return await self._items.get()
        except TimeoutError:
            return None


class QueuedAnswer:
    """One answer as the engine's thread sees it; `is_closed` is True once nobody reads it."""

    def __init__(
        self, number: int, asked: AnswerRequest, client: str, queue: AnswerQueue, meter: AnswerMeter
    ) -> None:
        self.number, self.asked, self.client = number, asked, client
        self.is_closed = False
        self._queue, self._meter = queue, meter
        self._has_ended = False

    def put(self, item: Item) -> None:
        """Queues a text delta, progress or the end; drops items after the end."""
        if self._has_ended:
            return
        if isinstance(item, FinishInfo):
            self._has_ended = True
            self._meter.end(item)
        elif isinstance(item, TextDelta):
            self._meter.delta(item)
        self._queue.put(self.number, item)
