"""ModelHost: the model as the event loop sees it, for answers and for facts that requests need."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, TypeVar

from msgspec import Struct, field
from starlette.types import Scope

from sharpi.config import SamplingParams
from sharpi.engine.engine import Engine
from sharpi.engine.sampling.text_delta import SampledToken
from sharpi.engine.scheduling.prompt_scores import PromptScores
from sharpi.serve.host.answer_group import AnswerGroup, AnswerRequest
from sharpi.serve.host.engine_thread import EngineThread
from sharpi.serve.host.loaded import MOST_BODY_BYTES, Loaded
from sharpi.serve.host.metrics import Metrics
from sharpi.serve.http.access import Admission, client_of
from sharpi.serve.http.errors import ApiError, stopping, unknown_model
from sharpi.tokenizer.tokenizer import Tokenizer

T = TypeVar("T")


class ModelHostSettings(Struct, frozen=True):
    """The user's settings of a ModelHost."""

    model_id: str  # the model's name in the APIs
    aliases: tuple[str, ...] = ()  # other names of the model
    max_parallel: int = 4  # answers that run at once
    max_waiting: int = 64  # the most further answers that may wait
    # Unloads the model after this time without use; None never does.
    idle_seconds: float | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)  # the defaults for requests


class ModelHost:
    """Runs answers on one event loop; only `start` and `close` block.

    `created`: when the host was made, in seconds since 1970. `context_size` and `max_body_bytes`
    are known once it has started.
    """

    def __init__(
        self,
        load: Callable[[], Engine],
        settings: ModelHostSettings,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.settings, self.created = settings, int(time.time())
        self._thread = EngineThread(load, settings.max_parallel, settings.idle_seconds, log)
        self._open: set[AnswerGroup] = set()
        self._admission = Admission(settings.max_parallel + settings.max_waiting)
        self.metrics = Metrics()
        self._is_stopping = False
        self.context_size, self.max_body_bytes = 0, MOST_BODY_BYTES

    def start(self) -> None:
        """Loads the model; raises the error of loading."""
        self._thread.start()
        if self._thread.model.loaded is not None:
            self.context_size = self._thread.model.loaded.engine.context_size
            self.max_body_bytes = self._thread.model.loaded.max_body_bytes

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
        """Returns the model, loading it again if necessary; requests must not keep parts of it."""
        self._thread.last_use = time.monotonic()
        if self._thread.model.loaded is not None:
            return self._thread.model.loaded
        return await asyncio.wrap_future(self._thread.load())

    async def look(self, view: Callable[[Loaded], T]) -> T | None:
        """Runs `view` on the model between two steps and returns its result.

        Returns None if no model is loaded.
        """
        return await asyncio.wrap_future(self._thread.look(view))

    @property
    def is_loaded(self) -> bool:
        """True while the model is in memory."""
        return self._thread.model.loaded is not None

    @property
    def state(self) -> Literal["loaded", "loading", "idle", "failed"]:
        """The state of the model; an idle one is unloaded, and the next request loads it."""
        if self._thread.model.is_loading:
            return "loading"
        if self.failure is not None:
            return "failed"
        return "loaded" if self.is_loaded else "idle"

    @property
    def failure(self) -> str | None:
        """The reason why the latest request could not be answered; None if it could.

        Either loading failed, or an error unloaded the model, or its results are not finite.
        """
        return self._thread.model.failure

    @property
    def idle_seconds(self) -> float:
        """The seconds since the model was last used."""
        return 0.0 if self._open else time.monotonic() - self._thread.last_use

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the loaded model; raises ApiError 503 if none is loaded."""
        loaded = self._thread.model.loaded
        if loaded is None:
            raise ApiError(503, "the model is not loaded; try again", "unavailable")
        return loaded.engine.tokenizer

    @contextmanager
    def admitted(self, scope: Scope) -> Iterator[None]:
        """Counts a client's request while the block prepares and answers it.

        Raises ApiError 429 if too many are running or waiting, and 503 if the server is stopping.
        """
        if self._is_stopping:
            raise stopping()
        with self._admission.admitted(client_of(scope)):
            self._thread.num_users += 1
            try:
                yield
            finally:
                self._thread.num_users -= 1

    def answers(self, asked: Sequence[AnswerRequest]) -> AnswerGroup:
        """Begins the answers to one request; the caller has to close them.

        Raises ApiError 503 if the server is stopping.
        """
        if self._is_stopping:
            raise stopping()
        thread, most = self._thread, self.settings.max_parallel
        group = AnswerGroup(
            asked, thread.submit, thread.cancel, self.metrics, most, self._open.discard
        )
        self._open.add(group)
        return group

    async def scored(self, ids: Sequence[int], num_best: int) -> list[SampledToken]:
        """Returns a prompt's tokens with log probabilities, computed between other steps.

        Raises ContextFullError, and ApiError 503 if the model is unloaded in the meantime.
        """
        await self.ready()
        scores = await self._required(
            lambda each: PromptScores(each.engine.runner, each.scheduler.cache, ids, num_best)
        )
        try:
            while not scores.is_complete:
                await self._required(lambda loaded: scores.step())
        finally:
            # Also if the client has left: the engine's thread closes the scores in any case.
            self._thread.look(lambda loaded: scores.close())
        return scores.tokens

    async def between_steps(self, view: Callable[[Loaded], T]) -> T:
        """Runs `view` on the model between two steps, loading it again if necessary.

        Raises the errors of `view`, and ApiError 503 without a model.
        """
        await self.ready()
        return await self._required(view)

    async def _required(self, view: Callable[[Loaded], T]) -> T:
        """Runs `view` on the model between two steps; raises ApiError 503 without a model."""
        found = await self.look(lambda loaded: (view(loaded),))
        if found is None:
            raise ApiError(503, "the model was unloaded; try again", "unavailable")
        return found[0]

    def stop(self) -> None:
        """Refuses new answers; open ones continue."""
        self._is_stopping = True

    def cut(self) -> None:
        """Ends all open answers at once; those that have not begun end with a 503."""
        self._is_stopping = True
        for answers in self._open:
            answers.cut()
