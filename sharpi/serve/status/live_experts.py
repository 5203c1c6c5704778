"""GET /experts/live: the expert counts of the running model, for the heat map of the web page.

Counts only grow. The page computes which experts were used since its last request, so that the
server stores nothing per page.
"""

import asyncio
import time
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse

from sharpi.experts.stats.stats_collect import ExpertView
from sharpi.serve.host.hosted_model import Loaded
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.endpoint import Endpoint

_LOOK_SECONDS = 2.0
_FRESH_SECONDS = 0.25  # a view is reused for this long, for all requests


class _Look(NamedTuple):
    """The ExpertView of a loaded model."""

    view: ExpertView | None  # None if the model has no experts


class LiveExperts:
    """Handles GET /experts/live; reads the model between two steps, and never loads it."""

    def __init__(self, host: ModelHost) -> None:
        self._host = host
        self._lock = asyncio.Lock()
        self._latest: dict[str, Any] = {"kind": "busy"}
        self._fresh_until = 0.0

    async def respond(self, request: Request) -> JSONResponse:
        """Returns which experts of the running model are resident, and how often each was used."""
        async with self._lock:
            if time.monotonic() >= self._fresh_until:
                await self._renew()
        rate = {"tokens_per_second": round(self._host.metrics.tokens.per_second(), 1)}
        return JSONResponse(self._latest | rate, headers={"Cache-Control": "no-store"})

    async def _renew(self) -> None:
        """Reads a new view; keeps the last view if a step of the model takes longer than 2 s."""
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                self._latest = as_json(await self._host.inspect_if_loaded(_look), time.monotonic())
        except TimeoutError:
            return
        self._fresh_until = time.monotonic() + _FRESH_SECONDS


def live_experts_endpoint(host: ModelHost) -> Endpoint:
    """Returns the endpoint GET /experts/live."""
    return Endpoint("GET", "/experts/live", LiveExperts(host).respond)


def _look(loaded: Loaded) -> _Look:
    return _Look(loaded.engine.expert_view())


def as_json(look: _Look | None, seconds: float) -> dict[str, Any]:
    """Returns the view as a JSON object.

    Its `kind` is "unloaded" without a model, "dense" without experts, "streamed" if experts are
    loaded into slots, else "mapped". `seconds` is the time of the view by a monotonic clock, of
    which only differences are meaningful.
    """
    if look is None:
        return {"kind": "unloaded"}
    view = look.view
    if view is None:
        return {"kind": "dense"}
    return {
        "kind": "mapped" if view.counts is None else "streamed",
        "seconds": round(seconds, 3),
        "num_experts": int(view.uses.shape[1]),
        "layers": [_layer(view, row) for row in range(len(view.layers))],
    }


def _layer(view: ExpertView, row: int) -> dict[str, Any]:
    """Returns the counts of one layer as a JSON object.

    `resident` is a string with a 1 or a 0 for each expert. Hits, loads and the like are included
    if experts are loaded into slots.
    """
    layer: dict[str, Any] = {
        "layer": view.layers[row],
        "slots": view.slots[row],
        "resident": "".join("01"[is_resident] for is_resident in view.resident[row].tolist()),
        "uses": view.uses[row].tolist(),
    }
    if view.counts is not None:
        counts = view.counts[row]._asdict()
        names = ("accesses", "hits", "late", "loads", "bytes_read")
        layer |= {name: counts[name] for name in names}
    return layer
