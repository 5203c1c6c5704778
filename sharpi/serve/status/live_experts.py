"""LiveExperts: GET /experts/live, the experts of the running model, for the page's heat map.

What the page draws, which expert was used since it last looked, it computes itself: counts here
only grow, and no watcher costs the server any state.
"""

import asyncio
import time
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from sharpi.experts.stats.view import ExpertView
from sharpi.serve.host.loaded import Loaded
from sharpi.serve.host.model_host import ModelHost

_LOOK_SECONDS = 2.0
_FRESH_SECONDS = 0.25  # however many pages look on, the engine is asked no more often


class _Look(NamedTuple):
    """A view of a model that is loaded; None where it has no experts."""

    view: ExpertView | None


class LiveExperts:
    """Looks at the model between two steps, and never has it loaded for that."""

    def __init__(self, host: ModelHost) -> None:
        self._host = host
        self._lock = asyncio.Lock()
        self._latest: dict[str, Any] = {"kind": "busy"}
        self._fresh_until = 0.0

    async def respond(self, request: Request) -> JSONResponse:
        """The latest look, a new one where that is old."""
        async with self._lock:
            if time.monotonic() >= self._fresh_until:
                await self._renew()
        rate = {"tokens_per_second": round(self._host.metrics.tokens.per_second(), 1)}
        return JSONResponse(self._latest | rate, headers={"Cache-Control": "no-store"})

    async def _renew(self) -> None:
        """Unless the model is busy with a long step: then the last look has to do."""
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                self._latest = as_json(await self._host.look(_look), time.monotonic())
        except TimeoutError:
            return
        self._fresh_until = time.monotonic() + _FRESH_SECONDS


def live_experts_route(host: ModelHost) -> Route:
    """GET /experts/live."""
    return Route("/experts/live", LiveExperts(host).respond, methods=["GET"])


def _look(loaded: Loaded) -> _Look:
    return _Look(loaded.engine.expert_view())


def as_json(look: _Look | None, seconds: float) -> dict[str, Any]:
    """`kind` says what there is: streamed or mapped experts, a dense model, or an unloaded one.

    `seconds`: when it was looked, of a clock that only serves for differences.
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
    """`resident`: a 1 or a 0 for every expert; counts of the store where there is one."""
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
