"""ModelHost: the model on the event loop, for answers and for what requests need to know."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from typing import Literal, TypeVar

from msgspec import Struct, field

from sharpi.config import GenerationRequest, SamplingParams
from sharpi.constraints.constraint import Constraint
from sharpi.engine.engine import Engine
from sharpi.engine.sampling.text_delta import FinishInfo
from sharpi.serve.host.engine_thread import EngineThread
from sharpi.serve.host.loaded import Loaded
from sharpi.serve.host.metrics import Metrics
from sharpi.serve.host.token_stream import Item, TokenStream
from sharpi.serve.http.errors import ApiError, busy, stopping, unknown_model
from sharpi.tokenizer.tokenizer import Tokenizer

T = TypeVar("T")


class ModelHostSettings(Struct, frozen=True):
    """The user's settings of the host."""

    model_id: str  # the model's name in the APIs
    aliases: tuple[str, ...] = ()  # other names of the model
    max_parallel: int = 4  # answers that run at once
    max_waiting: int = 64  # more answers that may wait
    # Unloads the model after this time without use; None never does.
    idle_seconds: float | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)  # the defaults of requests


class ModelHost:
    """Runs answers on one event loop; only `start` and `close` block.

    `created`: the time when it was made, in seconds since 1970.
    """

    def __init__(
        self,
        load: Callable[[], Engine],
        settings: ModelHostSettings,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.settings, self.created = settings, int(time.time())
        self._thread = EngineThread(load, settings.max_parallel, settings.idle_seconds, tell)
        self._open: set[TokenStream] = set()
        self.metrics = Metrics()
        self._is_stopping = False

    def start(self) -> None:
        """Loads the model; raises what loading raises."""
        self._thread.start()

    def close(self) -> None:
        """Ends all answers and writes the recorded files."""
        self._thread.close()

    @property
    def model_id(self) -> str:
        """The model's name in the APIs."""
        return self.settings.model_id

    def require_model(self, name: str) -> None:
        """Raises ApiError 404 for a name that is not this model's."""
        if name not in (self.model_id, *self.settings.aliases):
            raise unknown_model(name, self.model_id)

    async def ready(self) -> Loaded:
        """Returns the model, loaded again if necessary; keep no part of it beyond the request."""
        self._thread.last_use = time.monotonic()
        if self._thread.loaded is not None:
            return self._thread.loaded
        return await asyncio.wrap_future(self._thread.load())

    async def look(self, view: Callable[[Loaded], T]) -> T | None:
        """Runs `view` on the model between two steps and returns its result.

        Returns None if no model is loaded.
        """
        return await asyncio.wrap_future(self._thread.look(view))

    @property
    def is_loaded(self) -> bool:
        """True while the model is in memory."""
        return self._thread.loaded is not None

    @property
    def state(self) -> Literal["loaded", "loading", "idle"]:
        """The state of the model; an idle one is unloaded and loads at the next request."""
        if self._thread.is_loading:
            return "loading"
        return "loaded" if self.is_loaded else "idle"

    @property
    def idle_seconds(self) -> float:
        """The seconds since the model was last used."""
        return 0.0 if self._open else time.monotonic() - self._thread.last_use

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the loaded model; raises ApiError 503 if none is loaded."""
        loaded = self._thread.loaded
        if loaded is None:
            raise ApiError(503, "the model is not loaded; try again", "unavailable")
        return loaded.engine.tokenizer

    async def answer(
        self,
        prompt_ids: list[int],
        request: GenerationRequest,
        constraint: Constraint | None = None,
    ) -> AsyncGenerator[Item, None]:
        """Yields text deltas, then one FinishInfo.

        Closing or cancelling the generator ends the work. A failure to begin is raised at the first
        item: ApiError 429 if too many answers are waiting and 503 if the model cannot be loaded,
        ContextFullError, UsageError. Later failures are a FinishInfo "error"; a server that stops
        ends answers with "cancelled".
        """
        answer = TokenStream(prompt_ids, request, constraint, self.metrics.answer())
        self._admit(answer)
        try:
            self._thread.submit(answer)
            item = await answer.next()
            if isinstance(item, FinishInfo) and item.error is not None:
                raise item.error
            while not isinstance(item, FinishInfo):
                yield item
                item = await answer.next()
            yield item
        finally:
            answer.is_closed = True
            self._open.discard(answer)
            self._thread.cancel(answer)

    def _admit(self, answer: TokenStream) -> None:
        if self._is_stopping:
            raise stopping()
        if len(self._open) >= self.settings.max_parallel + self.settings.max_waiting:
            raise busy(len(self._open))
        self._open.add(answer)

    def stop(self) -> None:
        """Refuses new answers; open ones continue."""
        self._is_stopping = True

    def cut(self) -> None:
        """Ends all open answers at once, as `cancelled`."""
        self._is_stopping = True
        for answer in self._open:
            answer.put(FinishInfo("cancelled"))
            self._thread.cancel(answer)
