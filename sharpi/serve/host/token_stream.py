"""TokenStream: one answer on its way from the engine's thread to the event loop.

The engine never waits for a reader: pieces queue up, and there are as many at most as tokens.
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
    """Made on the event loop; `put` may be called on any thread.

    `is_closed`: whether nobody wants it any more.
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
        """Hands a piece or the end over; nothing follows an end, or goes to a closed event loop."""
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
        """What comes next, once it is there; nothing comes after the Ending."""
        return await self._items.get()
