"""A real server with the demo model on a free port, in a thread of the tests' own process."""

import threading
import time
from collections.abc import Callable
from typing import Any

import httpx

from sharpi.engine.loader import load_engine
from sharpi.resources import demo_model
from sharpi.serve.app import AppSettings, build_app
from sharpi.serve.host.model_host import ModelHost, ModelHostSettings
from sharpi.serve.web_server import WebServer, bind, url_of
from sharpi.settings import RunConfig

MODEL = "stories-moe"


class ServedDemo:
    """One server; `lines` has its log. `client` reuses connections and waits for half a minute."""

    def __init__(
        self,
        host: ModelHostSettings | None = None,
        app: Callable[..., AppSettings] = AppSettings,
        grace_seconds: float = 5.0,
        **config: Any,
    ) -> None:
        self.lines: list[str] = []
        settings = host or ModelHostSettings(MODEL)
        run = RunConfig(demo_model(), num_parallel=settings.max_parallel, **config)
        self.host = ModelHost(lambda: load_engine(run), settings, self.lines.append)
        self.host.start()
        self._listener = bind("127.0.0.1", 0)
        self.url = url_of(self._listener)
        self.port = int(self.url.rpartition(":")[2])
        self._server = WebServer(
            build_app(self.host, app(log=self.lines.append)), self.host, grace_seconds
        )
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],))
        self._thread.start()
        self.client = httpx.Client(base_url=self.url, timeout=60, trust_env=False)

    def begin_to_stop(self) -> None:
        """Stops the server as SIGTERM does, without waiting."""
        self._server.stop()

    def stop(self) -> None:
        self._server.stop()
        self._thread.join()
        self.client.close()
        self.host.close()
        self._listener.close()

    def slow_down(self, seconds: float) -> None:
        """Delays every further step of the loaded model."""
        scheduler: Any = self.scheduler
        step = type(scheduler).step

        def slow_step() -> bool:
            time.sleep(seconds)
            return bool(step(scheduler))

        scheduler.step = slow_step

    def speed_up(self) -> None:
        """Undoes `slow_down`."""
        vars(self.scheduler).pop("step", None)

    @property
    def scheduler(self) -> Any:
        loaded = self.host._thread.model.loaded
        assert loaded is not None
        return loaded.scheduler

    @property
    def num_busy(self) -> int:
        """Returns the number of answers that run or wait."""
        return int(self.scheduler.num_running + self.scheduler.num_waiting)

    def wait_until(self, holds: Callable[[], bool], seconds: float = 90.0) -> None:
        """Waits for the condition, and fails if it does not come true in time."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, "did not happen in time"
            time.sleep(0.005)

    def complete(self, **fields: Any) -> httpx.Response:
        """Requests an OpenAI completion, by default of 4 greedy tokens."""
        body = {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0} | fields
        return self.client.post("/v1/completions", json=body)
