"""The routes of OpenAI's APIs: they read requests, ask the model and send answers or streams.

Clients of Anthropic's API also read /v1/models.
"""

import asyncio
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sharpi.serve.chat.chat_model import ChatModels
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.errors import ApiError, openai_body
from sharpi.serve.http.event_stream import data_event, event_stream
from sharpi.serve.http.json_body import json_body
from sharpi.serve.openai.chat import chat_chunks, chat_completion
from sharpi.serve.openai.chat_request import read_chat
from sharpi.serve.openai.completions import completion, completion_chunks
from sharpi.serve.openai.completions_request import read_completions
from sharpi.serve.openai.response_stream import ResponseEvents
from sharpi.serve.openai.responses_request import read_responses


class Models:
    """Lists the one model of a host."""

    def __init__(self, host: ModelHost) -> None:
        self._host = host

    async def list(self, request: Request) -> Response:
        """Returns a list of one model."""
        name = self._host.model_id
        page = {"has_more": False, "first_id": name, "last_id": name}
        return JSONResponse({"object": "list", "data": [self._model()], **page})

    async def one(self, request: Request) -> Response:
        """Returns the model by its name or an alias; raises ApiError 404 for others."""
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


def routes(host: ModelHost, chats: ChatModels) -> list[Route]:
    """Returns the routes of one host."""
    api, models = OpenaiRoutes(host, chats), Models(host)
    return [
        Route("/v1/models", models.list, methods=["GET"]),
        Route("/v1/models/{name:path}", models.one, methods=["GET"]),
        Route("/v1/chat/completions", api.chat_completions, methods=["POST"]),
        Route("/v1/completions", api.completions, methods=["POST"]),
        Route("/v1/responses", api.responses, methods=["POST"]),
    ]


class OpenaiRoutes:
    """Answers the routes of OpenAI's APIs."""

    def __init__(self, host: ModelHost, chats: ChatModels) -> None:
        self._host, self._chats = host, chats

    async def chat_completions(self, request: Request) -> Response:
        """Answers a chat with the next message."""
        body, model = await json_body(request), await self._chats.get()
        asked = read_chat(body, self._host)
        prompt_requests = await asyncio.to_thread(model.prompt_requests, asked.call)
        if asked.is_stream:
            chunks = chat_chunks(self._host, prompt_requests, model.tokenizer, asked.includes_usage)
            return await event_stream(chunks, error_event)
        return JSONResponse(await chat_completion(self._host, prompt_requests, model.tokenizer))

    async def responses(self, request: Request) -> Response:
        """Answers a chat with the items of the next turn."""
        body, model = await json_body(request), await self._chats.get()
        asked = read_responses(body, self._host)
        [prompt_request] = await asyncio.to_thread(model.prompt_requests, asked.call)
        events = ResponseEvents(self._host, asked, model.tokenizer)
        if asked.is_stream:
            return await event_stream(events.stream(self._host, prompt_request), events.error_event)
        return JSONResponse(await events.whole(self._host, prompt_request))

    async def completions(self, request: Request) -> Response:
        """Continues the text of prompts."""
        body, model = await json_body(request), await self._chats.get()
        asked = await asyncio.to_thread(read_completions, body, self._host)
        prompt_requests = await asyncio.to_thread(
            model.completion_requests,
            asked.prompts,
            asked.request,
            asked.shape,
            asked.num_answers,
        )
        if asked.is_stream:
            chunks = completion_chunks(self._host, asked, prompt_requests, model.tokenizer)
            return await event_stream(chunks, error_event)
        return JSONResponse(await completion(self._host, asked, prompt_requests, model.tokenizer))


def error_event(error: ApiError) -> bytes:
    """Returns the event of an error within a stream."""
    return data_event(openai_body(error))
