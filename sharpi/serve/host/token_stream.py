"""TokenStream carries one answer from the engine's thread to the event loop.

The engine never waits for a reader: items are queued, at most as many as there are tokens.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TypeAlias

from sharpi.config import GenerationRequest
from sharpi.constraints.constraint import Constraint
from sharpi.engine.sampling.text_delta import FinishInfo, TextDelta
from sharpi.serve.host.metrics import AnswerMeter

Item: TypeAlias = TextDelta | FinishInfo


class TokenStream:
    """Queues the items of one answer; created on the event loop, and any thread may call `put`.

    `is_closed`: the reader is gone.
    """

    def __init__(
        self,
        prompt_ids: Sequence[int],
        request: GenerationRequest,
        constraint: Constraint | None,
        meter: AnswerMeter,
    ) -> None:
        self.prompt_ids, self.request, self.constraint = prompt_ids, request, constraint
        self.is_closed = False
        self._has_ended = False
        self._meter = meter
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[Item] = asyncio.Queue()

    def put(self, item: Item) -> None:
        """Queues a text delta or the end; drops items after the end or for a closed event loop."""
        if self._has_ended:
            return
        if isinstance(item, FinishInfo):
            self._has_ended = True
            self._meter.end(item)
        else:
            self._meter.delta(item)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)

    async def next(self) -> Item:
        """Waits for the next item and returns it; no item follows a FinishInfo."""
        return await self._items.get()
