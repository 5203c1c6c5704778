"""AnswerGroup: runs the answers to one request, and reads their items on the event loop.

An item is a text delta, the progress of prefill, or the end of an answer. An AnswerQueue carries
items from the engine's thread to the event loop. The engine never waits for a reader.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

from sharpi.constraints.constraint import Constraint
from sharpi.engine.sampling.generation_state import FinishInfo, PrefillProgress, TextDelta
from sharpi.serve.host.metrics import AnswerMeter, Metrics
from sharpi.serve.http.access import current_client
from sharpi.serve.http.errors import stopping
from sharpi.settings import GenerationRequest

Item: TypeAlias = TextDelta | PrefillProgress | FinishInfo
Numbered: TypeAlias = tuple[int, Item]


class AnswerRequest(Struct, frozen=True, eq=False):
    """The engine's input for one answer: token ids, generation request and constraint."""

    prompt_ids: list[int]
    request: GenerationRequest
    constraint: Constraint | None = None
    wants_progress: bool = False  # whether PrefillProgress items are sent


class AnswerQueue:
    """All answers' items of a request, made on the event loop; any thread may `put`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[Numbered] = asyncio.Queue()

    def put(self, number: int, item: Item) -> None:
        """Queues an item of answer `number`; drops it if the event loop is closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._items.put_nowait, (number, item))

    async def next(self, seconds: float) -> Numbered | None:
        """Waits for the next item of any answer; returns None after `seconds` without an item."""
        if not self._items.empty():
            return self._items.get_nowait()
        try:
            async with asyncio.timeout(seconds):
                return await self._items.get()
        except TimeoutError:
            return None


class QueuedAnswer:
    """One submitted answer, to which the engine's thread sends items.

    `is_closed` is set when its reader needs no further items.
    """

    def __init__(
        self, number: int, asked: AnswerRequest, client: str, queue: AnswerQueue, meter: AnswerMeter
    ) -> None:
        self.number, self.asked, self.client = number, asked, client
        self.is_closed = False
        self._queue, self._meter = queue, meter
        self._has_ended = False

    def put(self, item: Item) -> None:
        """Sends an item to the reader and records it in the metrics; drops items after the end."""
        if self._has_ended:
            return
        if isinstance(item, FinishInfo):
            self._has_ended = True
            self._meter.end(item)
        elif isinstance(item, TextDelta):
            self._meter.delta(item)
        self._queue.put(self.number, item)


PING_SECONDS = 10.0


class AnswerGroup:
    """Runs the answers to one request, at most `max_parallel` at once.

    `submit` and `cancel` are methods of the EngineThread; `close` calls `closed`. The first answer
    starts alone. Further answers start after its first item, to reuse its prompt in the KV cache.
    """

    def __init__(
        self,
        asked: Sequence[AnswerRequest],
        submit: Callable[[QueuedAnswer], None],
        cancel: Callable[[QueuedAnswer], None],
        metrics: Metrics,
        max_parallel: int,
        closed: Callable[["AnswerGroup"], None],
    ) -> None:
        self._waiting, self._client = deque(enumerate(asked)), current_client.get()
        self._running: dict[int, QueuedAnswer] = {}
        self._submit, self._cancel = submit, cancel
        self._metrics, self._max_parallel = metrics, max_parallel
        self._queue, self._closed = AnswerQueue(), closed
        self._begun: set[int] = set()  # indices of answers that have produced text
        self._begin(1)

    @property
    def is_open(self) -> bool:
        """True until all answers have ended."""
        return bool(self._running or self._waiting)

    async def next(self) -> Numbered | None:
        """Waits for the next (index of the answer, item); returns None after 10 s without one.

        Raises the error that ended an answer: ApiError 503 if the model cannot be loaded or the
        server stopped before the answer began, ContextFullError, UsageError, or the error of a
        step.
        """
        numbered = await self._queue.next(PING_SECONDS)
        while numbered is not None and numbered[0] not in self._running:
            numbered = await self._queue.next(PING_SECONDS)
        if numbered is None:
            return None
        number, item = numbered
        if isinstance(item, FinishInfo):
            del self._running[number]
            if item.error is not None:
                raise item.error
            if item.reason == "cancelled" and number not in self._begun:
                raise stopping()
        elif isinstance(item, TextDelta):
            self._begun.add(number)
        self._begin(self._max_parallel)
        return numbered

    def end(self, number: int) -> None:
        """Cancels one answer, if it has not ended."""
        answer = self._running.pop(number, None)
        if answer is not None:
            self._stop(answer)
        self._begin(self._max_parallel)

    def cancel_all(self) -> None:
        """Ends all answers as cancelled, first those that have produced text."""
        while self._waiting:
            self._add()
        for _, answer in sorted(self._running.items(), key=lambda item: item[0] not in self._begun):
            answer.put(FinishInfo("cancelled"))
            self._cancel(answer)

    def close(self) -> None:
        """Cancels all answers that have not ended."""
        self._waiting.clear()
        for answer in self._running.values():
            self._stop(answer)
        self._running.clear()
        self._closed(self)

    def _begin(self, most: int) -> None:
        while self._waiting and len(self._running) < most:
            self._submit(self._add())

    def _add(self) -> QueuedAnswer:
        """Creates a QueuedAnswer for the next waiting request, and adds it to the running ones."""
        number, asked = self._waiting.popleft()
        meter = self._metrics.answer()
        answer = QueuedAnswer(number, asked, self._client, self._queue, meter)
        self._running[number] = answer
        return answer

    def _stop(self, answer: QueuedAnswer) -> None:
        answer.is_closed = True
        self._cancel(answer)
