"""/v1/models, in words that the clients of both OpenAI's and Anthropic's APIs understand."""

from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sharpi.serve.model_host import ModelHost


class Models:
    """The one model of a host."""

    def __init__(self, host: ModelHost) -> None:
        self._host = host

    async def list(self, request: Request) -> Response:
        """A list of one."""
        name = self._host.model_id
        page = {"has_more": False, "first_id": name, "last_id": name}
        return JSONResponse({"object": "list", "data": [self._model()], **page})

    async def one(self, request: Request) -> Response:
        """The model, by its name or an alias; raises ApiError 404 for others."""
        self._host.require_model(request.path_params["name"])
        return JSONResponse(self._model())

    def _model(self) -> dict[str, Any]:
        created = self._host.created
        return {
            "id": self._host.model_id,
            "object": "model",
            "created": created,
            "owned_by": "sharpi",
            "type": "model",
            "display_name": self._host.model_id,
            "created_at": datetime.fromtimestamp(created, UTC).isoformat().replace("+00:00", "Z"),
        }
