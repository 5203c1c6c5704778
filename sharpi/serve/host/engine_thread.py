"""EngineThread: the only thread that uses the engine, from loading to closing it.

Other threads queue functions, which it calls between two steps.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from msgspec.structs import replace

from sharpi.engine.engine import Engine
from sharpi.engine.sampling.generation_state import FinishInfo, TextDelta
from sharpi.engine.scheduling.request import RequestId
from sharpi.errors import ModelFileError
from sharpi.serve.host.answer_group import QueuedAnswer
from sharpi.serve.host.hosted_model import HostedModel, Loaded, release_memory
from sharpi.serve.http.errors import stopping, unavailable, unreadable_model

T = TypeVar("T")
_LOOK_SECONDS = 1.0  # between two checks of the file of an unused model


class EngineThread:
    """Loads the model on first use, runs its steps, and unloads it after `idle_seconds`.

    `log` is called with lines for the server's log. Any thread may read `last_use` (in seconds of
    time.monotonic), and whether `model` is loaded.
    """

    def __init__(
        self,
        load: Callable[[], Engine],
        max_parallel: int,
        idle_seconds: float | None = None,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.model = HostedModel(load, max_parallel, log)
        self._idle_seconds, self._log = idle_seconds, log
        self._queued_calls: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._is_closing = self._has_ended = False
        self._request_ids: dict[QueuedAnswer, RequestId] = {}
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.num_users = 0  # requests in preparation or progress, which keep the model loaded
        self.last_use = time.monotonic()

    def start(self) -> None:
        """Starts the thread and loads the model; raises the error if loading fails."""
        self._thread.start()
        try:
            self._call(self._load_now).result()
        except BaseException:
            # An interrupt during loading does not wait for loading to end.
            if not self.model.is_loading:
                self.close()
            raise

    def load(self) -> "Future[Loaded]":
        """Loads the model unless it is loaded; the future fails with ApiError if that fails."""
        return self._call(self._ensure_loaded)

    def inspect_if_loaded(self, view: Callable[[Loaded], T]) -> "Future[T | None]":
        """Calls `view` with the model between two steps; the result is None without a model."""
        return self._call(lambda: view(self.model.loaded) if self.model.loaded else None)

    def submit(self, answer: QueuedAnswer) -> None:
        """Submits an answer before the next step; if that fails, it receives the error."""
        self._call_soon(lambda: self._begin(answer))

    def cancel(self, answer: QueuedAnswer) -> None:
        """Cancels an answer before the next step; does nothing if it has ended."""
        self._call_soon(lambda: self._cancel(answer))

    def close(self) -> None:
        """Cancels all answers, closes the engine and joins the thread; may be called twice."""
        with self._wake:
            self._is_closing = True
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _call(self, function: Callable[[], T]) -> "Future[T]":
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        self._call_soon(run)
        return future

    def _call_soon(self, call: Callable[[], None]) -> None:
        with self._wake:
            if not self._has_ended:
                self._queued_calls.append(call)
                self._wake.notify()
                return
        call()

    def _run(self) -> None:
        while not self._is_closing:
            self._run_queued_calls()
            if not self._step():
                self._wait_idle()
        self._unload(FinishInfo("cancelled"))
        with self._wake:
            self._has_ended = True
        self._run_queued_calls()

    def _run_queued_calls(self) -> None:
        while self._queued_calls:
            self._queued_calls.popleft()()

    def _step(self) -> bool:
        """Runs a step, and returns whether it computed anything; if it fails, ends all answers."""
        loaded = self.model.loaded
        if loaded is None:
            return False
        try:
            has_worked = loaded.scheduler.step()
            loaded.engine.mapped_file.check_reads()
            if has_worked:
                loaded.engine.mapped_file.check_sometimes()
            fatal, self.model.fatal = self.model.fatal, None  # it refers to the engine
            if fatal is not None:
                raise fatal
        except Exception as error:
            del loaded  # its memory is released now
            self._unload(self.model.record_step_error(error, len(self._request_ids)))
            return True
        if has_worked:
            self.last_use = time.monotonic()
        return has_worked

    def _wait_idle(self) -> None:
        """Waits for a call; unloads the model if it was idle for `idle_seconds`."""
        with self._wake:
            if not self._queued_calls and not self._is_closing:
                self._wake.wait(self._wait_seconds())
            is_idle = not self._queued_calls and not self._request_ids
        self._watch_file()
        if self.num_users:
            self.last_use = time.monotonic()
        left = self._idle_left()
        if is_idle and left is not None and left <= 0:
            self._log("idle: the model is unloaded, and loaded again at the next request")
            self._unload(FinishInfo("cancelled"))

    def _wait_seconds(self) -> float | None:
        left = self._idle_left()
        if self.model.loaded is None:
            return left
        return _LOOK_SECONDS if left is None else min(left, _LOOK_SECONDS)

    def _watch_file(self) -> None:
        """Unloads an unused model if its file was written to."""
        if self.model.loaded is None or self.num_users:
            return
        try:
            self.model.loaded.engine.mapped_file.check_sometimes()
        except ModelFileError as error:
            self._unload(self.model.mark_file_changed(error))

    def _idle_left(self) -> float | None:
        """Returns the seconds until the model is unloaded; None if it stays loaded."""
        if self._idle_seconds is None or self.model.loaded is None:
            return None
        return max(0.0, self.last_use + self._idle_seconds - time.monotonic())

    def _ensure_loaded(self) -> Loaded:
        """Returns the loaded model, and loads it first if necessary; raises ApiError."""
        if self._is_closing:
            raise stopping()
        self.last_use = time.monotonic()
        if self.model.loaded is not None:
            try:
                self.model.loaded.engine.mapped_file.check_content()
            except ModelFileError as error:
                self._unload(self.model.record_step_error(error, len(self._request_ids)))
        if self.model.loaded is not None:
            return self.model.loaded
        try:
            return self._load_now()
        except Exception as error:
            self.model.failure = "the model cannot be loaded"
            self._log(f"the model cannot be loaded: {error}")
            message = "the model cannot be loaded; the server's log says why"
            raise unavailable(message) from error

    def _load_now(self) -> Loaded:
        try:
            return self.model.load()
        finally:
            self.last_use = time.monotonic()

    def _begin(self, answer: QueuedAnswer) -> None:
        if answer.is_closed:
            return
        try:
            self._request_ids[answer] = self._submitted(answer, self._ensure_loaded())
        except Exception as error:
            answer.put(FinishInfo("error", error=error))

    def _submitted(self, answer: QueuedAnswer, loaded: Loaded) -> RequestId:
        def deliver(delta: TextDelta) -> None:
            # so that no text is sent that was computed from missing data
            loaded.engine.mapped_file.check_reads()
            answer.put(delta)

        def end(finish_info: FinishInfo) -> None:
            if not loaded.engine.mapped_file.is_readable:
                return  # the step handles the file's fault, and then ends the answer
            error = finish_info.error
            if error is not None and self.model.is_fatal(error, loaded.engine.mapped_file):
                return  # likewise for a lost rank and a replaced file
            self._request_ids.pop(answer, None)
            if finish_info.reason not in ("error", "cancelled"):
                self.model.failure = None
            answer.put(_for_clients(finish_info))

        return loaded.scheduler.submit(
            answer.asked.prompt_ids,
            answer.asked.request,
            constraint=answer.asked.constraint,
            on_delta=deliver,
            on_end=end,
            on_progress=answer.put if answer.asked.wants_progress else None,
            client=answer.client,
        )

    def _cancel(self, answer: QueuedAnswer) -> None:
        request_id = self._request_ids.get(answer)
        if request_id is not None and self.model.loaded is not None:
            self.model.loaded.scheduler.cancel(request_id)

    def _unload(self, finish_info: FinishInfo) -> None:
        """Takes the model away, then ends open answers with `finish_info`, and closes the model."""
        loaded, self.model.loaded = self.model.loaded, None
        for answer in list(self._request_ids):
            answer.put(finish_info)
        self._request_ids.clear()
        if loaded is not None:
            self.model.close(loaded)
            del loaded
            release_memory()


def _for_clients(finish_info: FinishInfo) -> FinishInfo:
    """Returns the finish info without errors that reveal the path of the model's file."""
    if isinstance(finish_info.error, ModelFileError):
        return replace(finish_info, error=unreadable_model())
    return finish_info
