"""The state of the server and of its model: /health, /metrics, /props and /experts/live.

Counts of experts only grow. The page computes which were used since its last request, so that the
server stores nothing per page.
"""

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sharpi import __version__
from sharpi.experts.stats.stats_collect import ExpertView
from sharpi.serve.host.hosted_model import Loaded, ModelSnapshot, take_snapshot
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.endpoint import Endpoint
from sharpi.tiers.plan import Tier

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def endpoints(host: ModelHost) -> list[Endpoint]:
    """Returns the endpoints /health, /metrics, /props and /experts/live."""
    status = Status(host)
    return [
        Endpoint("GET", "/health", status.health, other_paths=("/v1/health",)),
        Endpoint("GET", "/metrics", status.metrics),
        Endpoint("GET", "/props", status.props),
        Endpoint("GET", "/experts/live", LiveExperts(host).respond),
    ]


class Status:
    """The handlers of /health, /metrics and /props, with the latest snapshot of the model."""

    def __init__(self, host: ModelHost) -> None:
        self._host = host
        self._latest = ModelSnapshot()
        self._facts: dict[str, Any] = {}

    async def health(self, request: Request) -> Response:
        """Returns 200 unless the model has failed; the next request loads an unloaded model."""
        if self._host.failure is not None:
            body = {"status": "error", "model": "failed", "error": self._host.failure}
            return JSONResponse(body, 503)
        return JSONResponse({"status": "ok", "model": self._host.state})

    async def metrics(self, request: Request) -> Response:
        """Returns the metrics in Prometheus' text format."""
        await self._look()
        return Response(self._host.metrics.text(self._latest), media_type=_METRICS_TYPE)

    async def props(self, request: Request) -> Response:
        """Returns the settings and the state of the server, and properties of its model."""
        await self._look()
        host, now = self._host, self._latest
        served = {
            "model": host.model_id,
            "aliases": list(host.settings.aliases),
            "version": __version__,
            "pid": os.getpid(),
            "created": host.created,
            "uptime_seconds": round(time.time() - host.created, 1),
            "state": host.state,
            "idle_seconds": round(host.idle_seconds, 1),
            "parallel": host.settings.max_parallel,
            "queue": host.settings.max_waiting,
            "sampling": asdict(host.settings.sampling),
            "answers_running": now.answers_running,
            "answers_waiting": now.answers_waiting,
            "kv_pages": now.kv_pages,
            "kv_pages_in_use": now.kv_pages_in_use,
            "kv_pages_kept": now.kv_pages_kept,
            "tokens_per_second": round(host.metrics.tokens.per_second(), 1),
            "resident_bytes": resident_bytes(),
            # What llama.cpp's clients read.
            "total_slots": host.settings.max_parallel,
            "default_generation_settings": {"n_ctx": host.context_size},
            "modalities": {"vision": False, "audio": False},
        }
        return JSONResponse(served | self._facts)

    async def _look(self) -> None:
        """Takes a new snapshot; keeps the last one if a step of the model takes longer than 2 s."""
        with suppress(TimeoutError):
            look = await self._host.look(lambda each: (take_snapshot(each), model_facts(each)))
            self._latest, self._facts = look or (ModelSnapshot(), self._facts)


def model_facts(loaded: Loaded) -> dict[str, Any]:
    """Returns the constant properties of a loaded model for /props; sizes are in bytes."""
    engine = loaded.engine
    plan, model = engine.plan, engine.model_config
    tiers = {} if plan is None else {tier.value: plan.bytes_in(tier) for tier in Tier}
    return {
        "architecture": model.architecture,
        "context_size": engine.context_size,
        "num_layers": model.num_layers,
        "num_experts": model.num_experts,
        "num_experts_per_token": model.num_experts_per_token,
        "chat_format": engine.chat_format.kind,
        "chat_template": engine.tokenizer.chat_template or "",
        "file": engine.file.path.name,
        "file_bytes": engine.file.num_bytes,
        "bytes_by_tier": tiers,
        "streams_experts": engine.streams_experts,
    }


def resident_bytes() -> int | None:
    """Returns the RAM of this process in bytes, including mapped files; None if unknown."""
    try:
        pages = Path("/proc/self/statm").read_text("ascii").split()[1]
    except (OSError, IndexError):
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


_FRESH_SECONDS = 0.25  # a view is reused for this long, for all requests


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
        with suppress(TimeoutError):
            look = await self._host.look(lambda each: (each.engine.expert_view(),))
            self._latest = as_json(look, time.monotonic())
            self._fresh_until = time.monotonic() + _FRESH_SECONDS


def as_json(look: tuple[ExpertView | None] | None, seconds: float) -> dict[str, Any]:
    """Returns the view of a loaded model as a JSON object.

    Its `kind` is "unloaded" without a model, "dense" without experts, "streamed" if experts are
    loaded into slots, else "mapped". `seconds` is the time of the view by a monotonic clock, of
    which only differences are meaningful.
    """
    if look is None:
        return {"kind": "unloaded"}
    [view] = look
    if view is None:
        return {"kind": "dense"}
    return {
        "kind": "mapped" if view.counts is None else "streamed",
        "seconds": round(seconds, 3),
        "num_experts": int(view.uses.shape[1]),
        "layers": [_layer(view, row) for row in range(len(view.layers))],
    }


def _layer(view: ExpertView, row: int) -> dict[str, Any]:
    """Returns one layer's counts; `resident` is a string of 0 and 1, one for each expert."""
    layer: dict[str, Any] = {
        "layer": view.layers[row],
        "slots": view.slots[row],
        "resident": "".join("01"[is_resident] for is_resident in view.resident[row].tolist()),
        "uses": view.uses[row].tolist(),
    }
    if view.counts is not None:
        names, total = ("accesses", "hits", "late", "loads"), view.counts[row].total
        layer |= {name: getattr(total, name) for name in names}
        layer["bytes_read"] = view.counts[row].bytes_read
    return layer
