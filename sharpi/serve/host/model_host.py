"""ModelHost: access to the engine's thread from the event loop, for all request handlers."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, TypeVar

from msgspec import Struct, field
from starlette.types import Scope

from sharpi.engine.engine import Engine
from sharpi.engine.sampling.sampler import SampledToken
from sharpi.engine.sequence import PromptScores
from sharpi.serve.host.answer_group import AnswerGroup, AnswerRequest
from sharpi.serve.host.engine_thread import EngineThread
from sharpi.serve.host.hosted_model import MOST_BODY_BYTES, Loaded
from sharpi.serve.host.metrics import Metrics
from sharpi.serve.http.access import Admission, client_of
from sharpi.serve.http.errors import stopping, unavailable, unknown_model
from sharpi.settings import SamplingParams
from sharpi.tokenizer.tokenizer import Tokenizer

T = TypeVar("T")
_LOOK_SECONDS = 2.0
_MAX_NOTES = 1000  # different lines about requests that the log gets


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
    """Runs answers for the handlers on one event loop; only `start` and `close` block.

    `created` is the time of its creation, in seconds since 1970. `context_size` and
    `max_body_bytes` are valid after `start`.
    """

    def __init__(
        self,
        load: Callable[[], Engine],
        settings: ModelHostSettings,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.settings, self.created = settings, int(time.time())
        self._log, self._noted = log, set[str]()
        self._thread = EngineThread(load, settings.max_parallel, settings.idle_seconds, log)
        self._open: set[AnswerGroup] = set()
        self._admission = Admission(settings.max_parallel + settings.max_waiting)
        self.metrics = Metrics()
        self._is_stopping = False
        self.context_size, self.max_body_bytes = 0, MOST_BODY_BYTES

    def start(self) -> None:
        """Loads the model, and waits for that; raises the error of loading."""
        self._thread.start()
        if self._thread.model.loaded is not None:
            self.context_size = self._thread.model.loaded.engine.context_size
            self.max_body_bytes = self._thread.model.loaded.max_body_bytes

    def close(self) -> None:
        """Ends all answers and closes the engine, which writes its records."""
        self._thread.close()

    @property
    def model_id(self) -> str:
        """The model's name in the APIs."""
        return self.settings.model_id

    def note(self, lines: Iterable[str]) -> dict[str, str]:
        """Logs each line about requests once; returns the header that tells a client of them."""
        lines = list(lines)
        for line in lines:
            if line not in self._noted and len(self._noted) < _MAX_NOTES:
                self._noted.add(line)
                self._log(line)
        text = "".join(each if " " <= each <= "~" else "?" for each in "; ".join(lines))
        return {"X-Sharpi-Note": text} if text else {}

    def require_model(self, name: str) -> None:
        """Raises ApiError 404 unless `name` is this model's name or an alias."""
        if name not in (self.model_id, *self.settings.aliases):
            raise unknown_model(name, self.model_id)

    async def ready(self) -> Loaded:
        """Returns the model, loaded if necessary; callers must not keep references to its parts."""
        self._thread.last_use = time.monotonic()
        if self._thread.model.loaded is not None:
            return self._thread.model.loaded
        return await asyncio.wrap_future(self._thread.load())

    async def inspect_if_loaded(self, view: Callable[[Loaded], T]) -> T | None:
        """Returns what `view` returns between two steps; None if no model is loaded."""
        return await asyncio.wrap_future(self._thread.inspect_if_loaded(view))

    async def look(self, view: Callable[[Loaded], T]) -> T | None:
        """Does as `inspect_if_loaded`, and raises TimeoutError if a step takes longer than 2 s."""
        async with asyncio.timeout(_LOOK_SECONDS):
            return await self.inspect_if_loaded(view)

    @property
    def is_loaded(self) -> bool:
        """True while the model is in memory."""
        return self._thread.model.loaded is not None

    @property
    def state(self) -> Literal["loaded", "loading", "idle", "failed"]:
        """The state of the model; "idle" means unloaded until the next request."""
        if self._thread.model.is_loading:
            return "loading"
        if self.failure is not None:
            return "failed"
        return "loaded" if self.is_loaded else "idle"

    @property
    def failure(self) -> str | None:
        """Why loading or an answer failed; None after the next success."""
        return self._thread.model.failure

    @property
    def idle_seconds(self) -> float:
        """The seconds since the model was last used; 0 while answers are open."""
        return 0.0 if self._open else time.monotonic() - self._thread.last_use

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the loaded model; raises ApiError 503 if none is loaded."""
        loaded = self._thread.model.loaded
        if loaded is None:
            raise unavailable("the model is not loaded; try again")
        return loaded.engine.tokenizer

    @contextmanager
    def admitted(self, scope: Scope) -> Iterator[None]:
        """Counts a request as open while in use; raises ApiError 429, or 503 when stopping."""
        if self._is_stopping:
            raise stopping()
        with self._admission.admitted(client_of(scope)):
            self._thread.num_users += 1
            try:
                yield
            finally:
                self._thread.num_users -= 1

    def answers(self, asked: Sequence[AnswerRequest]) -> AnswerGroup:
        """Starts a request's answers, which the caller closes; raises ApiError 503 at the end."""
        if self._is_stopping:
            raise stopping()
        thread, most = self._thread, self.settings.max_parallel
        group = AnswerGroup(
            asked, thread.submit, thread.cancel, self.metrics, most, self._open.discard
        )
        self._open.add(group)
        return group

    async def scored(self, ids: Sequence[int], num_best: int) -> list[SampledToken]:
        """Returns a prompt's tokens with log probabilities and the `num_best` alternatives of each.

        They are computed in steps between those of the scheduler. Raises ContextFullError, and
        ApiError 503 if the model is unloaded before they are complete.
        """
        await self.ready()
        scores = await self._required(
            lambda each: PromptScores(each.engine.runner, each.scheduler.cache, ids, num_best)
        )
        try:
            while not scores.is_complete:
                await self._required(lambda loaded: scores.step())
        finally:
            # Closed on the engine's thread, even if the client has disconnected.
            self._thread.inspect_if_loaded(lambda loaded: scores.close())
        return scores.tokens

    async def between_steps(self, view: Callable[[Loaded], T]) -> T:
        """Calls `view` with the model, loaded if necessary; raises its errors and ApiError 503."""
        await self.ready()
        return await self._required(view)

    async def _required(self, view: Callable[[Loaded], T]) -> T:
        """Calls `view` with the model between two steps; raises ApiError 503 if none is loaded."""
        found = await self.inspect_if_loaded(lambda loaded: (view(loaded),))
        if found is None:
            raise unavailable("the model was unloaded; try again")
        return found[0]

    def stop(self) -> None:
        """Makes new requests fail with ApiError 503; open answers continue."""
        self._is_stopping = True

    def cancel_all(self) -> None:
        """Ends all open answers at once; answers that have not begun raise ApiError 503."""
        self._is_stopping = True
        for answers in self._open:
            answers.cancel_all()
