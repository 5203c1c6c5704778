"""GET /experts/live: the experts of the running model, for the page's heat map.

Counts only grow. The page itself computes which experts were used since its last request, so that
the server keeps no state for it.
"""

import asyncio
import time
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse

from sharpi.experts.stats.view import ExpertView
from sharpi.serve.host.loaded import Loaded
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.endpoint import Endpoint

_LOOK_SECONDS = 2.0
_FRESH_SECONDS = 0.25  # a view is shared for this long, however many pages ask


class _Look(NamedTuple):
    """A view of a loaded model's experts."""

    view: ExpertView | None  # None without experts


class LiveExperts:
    """Reads the model's state between two steps, and never loads a model for it."""

    def __init__(self, host: ModelHost) -> None:
        self._host = host
        self._lock = asyncio.Lock()
        self._latest: dict[str, Any] = {"kind": "busy"}
        self._fresh_until = 0.0

    async def respond(self, request: Request) -> JSONResponse:
        """Returns the latest view, renewed if it is old."""
        async with self._lock:
            if time.monotonic() >= self._fresh_until:
                await self._renew()
        rate = {"tokens_per_second": round(self._host.metrics.tokens.per_second(), 1)}
        return JSONResponse(self._latest | rate, headers={"Cache-Control": "no-store"})

    async def _renew(self) -> None:
        """Takes a new view; keeps the last one if the model is busy with a long step."""
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                self._latest = as_json(await self._host.look(_look), time.monotonic())
        except TimeoutError:
            return
        self._fresh_until = time.monotonic() + _FRESH_SECONDS


def live_experts_endpoint(host: ModelHost) -> Endpoint:
    """Returns the endpoint GET /experts/live."""
    return Endpoint("GET", "/experts/live", LiveExperts(host).respond)


def _look(loaded: Loaded) -> _Look:
    return _Look(loaded.engine.expert_view())


def as_json(look: _Look | None, seconds: float) -> dict[str, Any]:
    """Returns the view as JSON, with its `kind`: "streamed", "mapped", "dense" or "unloaded".

    `seconds`: the time of the view by a monotonic clock; only differences have a meaning.
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
    """Returns one layer as JSON.

    `resident` has a 1 or a 0 for each expert; the counts come from the expert store.
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
