"""The endpoints of OpenAI's APIs, and the list of models that their clients read.

Clients of Anthropic's API also read /v1/models.
"""

from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sharpi.serve.chat.chat_model import ChatModels, answer_endpoint
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.endpoint import Endpoint
from sharpi.serve.openai.bodies import ChatBody, CompletionsBody, ResponsesBody
from sharpi.serve.openai.chat import ChatAnswers
from sharpi.serve.openai.completions import Completions
from sharpi.serve.openai.response_stream import Responses


def model_body(host: ModelHost) -> dict[str, Any]:
    """Returns the one model of the server, in the words of both APIs."""
    created = datetime.fromtimestamp(host.created, UTC).isoformat().replace("+00:00", "Z")
    return {
        "id": host.model_id,
        "object": "model",
        "created": host.created,
        "owned_by": "sharpi",
        "type": "model",
        "display_name": host.model_id,
        # One number under the names that llama.cpp's, vLLM's and OpenRouter's clients expect.
        "meta": {"n_ctx": host.context_size},
        "max_model_len": host.context_size,
        "context_length": host.context_size,
        "created_at": created,
    }


def endpoints(host: ModelHost, chats: ChatModels) -> list[Endpoint]:
    """Returns the endpoints of OpenAI's APIs and of /v1/models."""

    async def models(request: Request) -> Response:
        """Returns a list with the one model of the server."""
        page = {"has_more": False, "first_id": host.model_id, "last_id": host.model_id}
        return JSONResponse({"object": "list", "data": [model_body(host)], **page})

    async def model(request: Request) -> Response:
        """Returns the model by its name or an alias; raises ApiError 404 for others."""
        host.require_model(request.path_params["name"])
        return JSONResponse(model_body(host))

    chat, completions, responses = (
        (f"/v1/{name}", f"/{name}") for name in ("chat/completions", "completions", "responses")
    )
    return [
        Endpoint("GET", "/v1/models", models, other_paths=("/models",)),
        Endpoint("GET", "/v1/models/{name:path}", model, other_paths=("/models/{name:path}",)),
        answer_endpoint(host, chats, chat, ChatBody, ChatAnswers),
        answer_endpoint(host, chats, completions, CompletionsBody, Completions),
        answer_endpoint(host, chats, responses, ResponsesBody, Responses),
    ]
