"""The page with a server of scripted answers."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from sharpi.serve.http.endpoint import page_endpoints

NUM_LAYERS, NUM_EXPERTS, NUM_SLOTS = 24, 64, 16
Deltas = list[dict[str, str]]

MARKDOWN = """# A heading

Some *emphasis*, **strong words**, `inline code` and [a link](https://example.org/a_(b)).

1. First
   - nested
   - twice
2. Second

| expert | uses |
|:-------|-----:|
| 7      |  412 |
| 31     |   96 |

```python
def greet(name):
    return f"hello, {name}"
```

> A quotation.
"""


class ScriptedServer:
    """Answers by the text of the last message.

    `answers` has the deltas, `pause` the seconds between two. It keeps the bodies of all requests;
    `num_dropped` counts answers with a client that disconnected. After `held_after` events an
    answer waits until that is None again, for a test that looks at what is there by then.
    """

    def __init__(self) -> None:
        self.url = ""
        self.reset()

    def reset(self) -> None:
        self.answers: dict[str, Deltas] = {}
        self.requests: list[dict[str, Any]] = []
        self.pause = 0.01
        self.held_after: int | None = None
        self.progress: list[int] = []  # tokens of a prompt of 6,000, told before each answer
        self.key: str | None = None
        self.kind = "streamed"
        self.num_dropped = 0
        self.num_looks = 0

    def app(self) -> Starlette:
        routes = [
            *(route for page in page_endpoints() for route in page.routes),
            Route("/v1/models", self._models),
            Route("/props", self._props),
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/experts/live", self._experts),
        ]
        return Starlette(routes=routes)

    def _refusal(self, request: Request) -> Response | None:
        if self.key is None or request.headers.get("authorization") == f"Bearer {self.key}":
            return None
        return JSONResponse({"error": {"message": "a valid API key is needed"}}, 401)

    async def _models(self, request: Request) -> Response:
        models = {"data": [{"id": "Scripted-MoE-30B-A3B-Q4_K_M"}]}
        return self._refusal(request) or JSONResponse(models)

    async def _props(self, request: Request) -> Response:
        return JSONResponse({"sampling": {"temperature": 0.8, "top_k": 40}})

    async def _chat(self, request: Request) -> Response:
        if refusal := self._refusal(request):
            return refusal
        body = await request.json()
        self.requests.append(body)
        text = body["messages"][-1]["content"]
        if text == "refuse":
            return JSONResponse({"error": {"message": "the prompt is too long"}}, 400)
        deltas = self.answers.get(text, words(f"You said: {text}"))
        return StreamingResponse(self._events(text, deltas), media_type="text/event-stream")

    async def _events(self, text: str, deltas: Deltas) -> AsyncIterator[str]:
        try:
            for number, done in enumerate(self.progress, 1):
                told = {"total": 6000, "cache": 0, "processed": done, "time_ms": 200 * number}
                yield event({"choices": [], "prompt_progress": told})
                await self._pause(number)
            for number, delta in enumerate(deltas, len(self.progress) + 1):
                yield event({"choices": [{"delta": delta}]})
                await self._pause(number)
        except asyncio.CancelledError:
            self.num_dropped += 1
            raise
        if text == "break":
            yield event({"error": {"message": "the disk failed"}})
            return
        yield event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        usage = {
            "prompt_tokens": 40,
            "completion_tokens": len(deltas),
            "prompt_tokens_details": {"cached_tokens": 24},
        }
        yield event({"choices": [], "usage": usage})
        yield "data: [DONE]\n\n"

    async def _pause(self, number: int) -> None:
        await asyncio.sleep(self.pause)
        while self.held_after is not None and number >= self.held_after:
            await asyncio.sleep(0.01)

    async def _experts(self, request: Request) -> Response:
        self.num_looks += 1
        if self.kind in ("dense", "unloaded"):
            return JSONResponse({"kind": self.kind, "tokens_per_second": 0})
        return JSONResponse(live(self.num_looks, self.kind))


def words(text: str) -> Deltas:
    """Splits a text into pieces of a few characters."""
    return [{"content": text[at : at + 5]} for at in range(0, len(text), 5)]


def event(chunk: dict[str, Any]) -> str:
    return f"data: {json.dumps(chunk)}\n\n"


def live(look: int, kind: str) -> dict[str, Any]:
    """Returns a view of experts in which every layer has used a few since the last one."""
    layers = [_layer(look, number, kind) for number in range(NUM_LAYERS)]
    return {
        "kind": kind,
        "seconds": look / 2,
        "num_experts": NUM_EXPERTS,
        "tokens_per_second": 18.4,
        "layers": layers,
    }


def _layer(look: int, layer: int, kind: str) -> dict[str, Any]:
    def residents(at: int) -> set[int]:
        return {(layer * 7 + slot * 5 + at % 3 * slot // 6) % NUM_EXPERTS for slot in range(16)}

    resident = residents(look) if kind == "streamed" else set(range(NUM_EXPERTS))
    uses = [3 * (expert * 13 % 29) for expert in range(NUM_EXPERTS)]
    for at in range(1, look + 1):
        for n, expert in enumerate(sorted(residents(at))[at % 2 :: 3]):
            uses[expert] += 1 + n
    fields = {
        "layer": layer,
        "slots": NUM_SLOTS,
        "resident": "".join("01"[expert in resident] for expert in range(NUM_EXPERTS)),
        "uses": uses,
    }
    counts = {"accesses": 900 * look, "hits": 830 * look, "late": 10, "loads": 60 * look}
    return fields | ({} if kind == "mapped" else counts | {"bytes_read": look * 400_000})


class RunningServer:
    """Serves the application on a free port of this machine, in a thread."""

    def __init__(self, server: ScriptedServer) -> None:
        config = uvicorn.Config(server.app(), port=0, log_level="error", lifespan="off")
        self._server, self._uvicorn = server, uvicorn.Server(config)
        self._thread = threading.Thread(target=self._uvicorn.run, daemon=True)

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        end = time.monotonic() + 60
        while not self._uvicorn.started:
            assert time.monotonic() < end, "the test's server did not start"
            time.sleep(0.01)
        port = self._uvicorn.servers[0].sockets[0].getsockname()[1]
        self._server.url = f"http://127.0.0.1:{port}/"
        return self._server

    def __exit__(self, *error: object) -> None:
        self._uvicorn.should_exit = self._uvicorn.force_exit = True
        self._thread.join(60)
