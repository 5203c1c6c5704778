"""/slots: saves, restores and erases the KV cache of a slot, in the form of llama.cpp's server."""

import asyncio
import time
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sharpi.engine.prompt_cache.model_digest import ModelDigest, key_of
from sharpi.engine.prompt_cache.record import RecordFault
from sharpi.serve.host.hosted_model import Loaded
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.endpoint import Body, Endpoint, prepared
from sharpi.serve.http.errors import ApiError, invalid_request, unavailable

_MAX_NAME_BYTES = 200
_NOT_SUPPORTED = "this server saves no slots; --slot-save-path DIR names the folder for them"


class SlotBody(Body):
    """The file to save to, or to restore from."""

    filename: str | None = None  # in the server's slot folder; `erase` needs none


def endpoints(host: ModelHost, folder: Path | None) -> list[Endpoint]:
    """Returns the endpoints of /slots; `folder` holds saved slots, None disables saving."""
    slots = SlotRoutes(host, folder)
    return [
        Endpoint("GET", "/slots", slots.listed),
        Endpoint("POST", "/slots/{id_slot:int}", slots.act, SlotBody),
    ]


class SlotRoutes:
    """The handlers of GET /slots and POST /slots/{id_slot}."""

    def __init__(self, host: ModelHost, folder: Path | None) -> None:
        self._host, self._folder = host, folder

    async def listed(self, request: Request) -> Response:
        """Lists the slots, with the number of tokens of the last text in each."""
        return JSONResponse(await self._host.between_steps(_slots))

    async def act(self, request: Request) -> Response:
        """Saves, restores or erases the KV cache of a slot, as the query's `action` says."""
        number = self._number(request)
        action = request.query_params.get("action")
        if action == "erase":
            count = await self._host.between_steps(lambda each: each.scheduler.slots.erase(number))
            return JSONResponse({"id_slot": number, "n_erased": count})
        if action not in ("save", "restore"):
            raise invalid_request("action is one of save, restore and erase", param="action")
        folder = self._folder
        if folder is None:
            raise ApiError(501, _NOT_SUPPORTED, "not_supported")
        name = await prepared(request, SlotBody, _checked_name)
        words = ("saved", "written") if action == "save" else ("restored", "read")
        start = time.perf_counter()
        num_tokens, num_bytes = await self._done(action, number, folder / name)
        milliseconds = round(1000 * (time.perf_counter() - start), 3)
        answer = {"id_slot": number, "filename": name}
        counts = {f"n_{words[0]}": num_tokens, f"n_{words[1]}": num_bytes}
        return JSONResponse({**answer, **counts, "timings": {f"{action}_ms": milliseconds}})

    def _number(self, request: Request) -> int:
        number, count = int(request.path_params["id_slot"]), self._host.settings.max_parallel
        if number >= count:
            raise invalid_request(f"there are slots 0 to {count - 1}", param="id_slot")
        return number

    async def _done(self, action: str, number: int, path: Path) -> tuple[int, int]:
        """Saves or restores a slot between two steps; returns its numbers of tokens and bytes."""
        key = await self._key(path.parent)

        def work(loaded: Loaded) -> tuple[int, int]:
            slots = loaded.scheduler.slots
            return (slots.save if action == "save" else slots.restore)(number, path, key)

        try:
            return await self._host.between_steps(work)
        except FileNotFoundError:
            raise ApiError(404, f"there is no file {path.name!r}", param="filename") from None
        except RecordFault as fault:
            message = f"{path.name!r} cannot be restored: {fault}"
            raise invalid_request(message, param="filename") from None
        except OSError as error:
            raise ApiError(500, f"{path.name!r}: {error.strerror}", "server_error") from error

    async def _key(self, folder: Path) -> bytes:
        """Returns the key of saved slots: a digest of the file, which the first call reads."""
        parts, arithmetic = await self._host.between_steps(
            lambda each: (each.engine.file.parts, each.engine.arithmetic)
        )
        digest = ModelDigest(folder, parts)
        found = digest.known() or await asyncio.to_thread(digest.compute)
        if found is None:
            raise unavailable("the model's file was changed; try again")
        return key_of(found, arithmetic)


def _slots(loaded: Loaded) -> list[dict[str, Any]]:
    return [
        {"id": number, "n_ctx": loaded.engine.context_size, "n_tokens": len(text)}
        for number, text in enumerate(loaded.scheduler.slots.texts)
    ]


def _checked_name(body: SlotBody) -> str:
    """Returns the body's file name; raises ApiError unless it is a plain name without a folder."""
    name = body.filename
    if name is None:
        raise invalid_request("filename is missing", param="filename")
    is_plain = name.isprintable() and not any(each in name for each in '/\\:*?"<>|')
    if not name or name[0] in ". " or not is_plain or len(name.encode()) > _MAX_NAME_BYTES:
        raise invalid_request("filename must be the plain name of a file", param="filename")
    return name
