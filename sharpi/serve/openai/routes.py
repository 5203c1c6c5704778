"""The routes of OpenAI's APIs: they read requests, ask the model and send answers or streams.

Clients of Anthropic's API also read /v1/models.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sharpi.serve.chat.answer_parts import PromptRequest
from sharpi.serve.chat.chat_model import ChatModel, ChatModels
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.endpoint import Endpoint, prepared
from sharpi.serve.http.errors import ApiError, openai_body
from sharpi.serve.http.event_stream import data_event, event_stream
from sharpi.serve.openai.chat import chat_chunks, chat_completion
from sharpi.serve.openai.chat_body import ChatBody
from sharpi.serve.openai.chat_request import ChatRequest, chat_request
from sharpi.serve.openai.completions import completion, completion_chunks, with_scores
from sharpi.serve.openai.completions_body import CompletionsBody
from sharpi.serve.openai.completions_request import CompletionsRequest, completions_request
from sharpi.serve.openai.response_stream import ResponseEvents
from sharpi.serve.openai.responses_body import ResponsesBody
from sharpi.serve.openai.responses_request import ResponsesRequest, responses_request


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
        created, context_size = self._host.created, self._host.context_size
        return {
            "id": self._host.model_id,
            "object": "model",
            "created": created,
            "owned_by": "sharpi",
            "type": "model",
            "display_name": self._host.model_id,
            # The names of llama.cpp's, vLLM's and OpenRouter's clients for the same number.
            "meta": {"n_ctx": context_size},
            "max_model_len": context_size,
            "context_length": context_size,
            "created_at": datetime.fromtimestamp(created, UTC).isoformat().replace("+00:00", "Z"),
        }


def endpoints(host: ModelHost, chats: ChatModels) -> list[Endpoint]:
    """Returns the endpoints of one host."""
    api, models = OpenaiRoutes(host, chats), Models(host)
    return [
        Endpoint("GET", "/v1/models", models.list, other_paths=("/models",)),
        Endpoint("GET", "/v1/models/{name:path}", models.one, other_paths=("/models/{name:path}",)),
        Endpoint(
            "POST",
            "/v1/chat/completions",
            api.chat_completions,
            ChatBody,
            ("/chat/completions",),
            streams=True,
        ),
        Endpoint(
            "POST", "/v1/completions", api.completions, CompletionsBody, ("/completions",), True
        ),
        Endpoint("POST", "/v1/responses", api.responses, ResponsesBody, ("/responses",), True),
    ]


class OpenaiRoutes:
    """Answers the endpoints of OpenAI's APIs."""

    def __init__(self, host: ModelHost, chats: ChatModels) -> None:
        self._host, self._chats = host, chats

    async def chat_completions(self, request: Request) -> Response:
        """Answers a chat with the next message."""
        model = await self._chats.get()
        asked, prompt_requests = await prepared(request, ChatBody, self._chat(model))
        if asked.wants_progress:
            prompt_requests = [replace(each, wants_progress=True) for each in prompt_requests]
        if asked.is_stream:
            chunks = chat_chunks(self._host, prompt_requests, model.tokenizer, asked.includes_usage)
            return await event_stream(chunks, error_event)
        return JSONResponse(await chat_completion(self._host, prompt_requests, model.tokenizer))

    async def responses(self, request: Request) -> Response:
        """Answers a chat with the items of the next turn."""
        model = await self._chats.get()
        asked, [prompt_request] = await prepared(request, ResponsesBody, self._response(model))
        events = ResponseEvents(self._host, asked, model.tokenizer)
        if asked.is_stream:
            return await event_stream(events.stream(self._host, prompt_request), events.error_event)
        return JSONResponse(await events.whole(self._host, prompt_request))

    async def completions(self, request: Request) -> Response:
        """Continues the text of prompts."""
        model = await self._chats.get()
        asked, prompt_requests = await prepared(request, CompletionsBody, self._completion(model))
        asked = await with_scores(self._host, asked)
        if asked.is_stream:
            chunks = completion_chunks(self._host, asked, prompt_requests, model.tokenizer)
            return await event_stream(chunks, error_event)
        return JSONResponse(await completion(self._host, asked, prompt_requests, model.tokenizer))

    def _chat(
        self, model: ChatModel
    ) -> Callable[[ChatBody], tuple[ChatRequest, list[PromptRequest]]]:
        def prepare(body: ChatBody) -> tuple[ChatRequest, list[PromptRequest]]:
            asked = chat_request(body, self._host)
            return asked, model.prompt_requests(asked.call)

        return prepare

    def _response(
        self, model: ChatModel
    ) -> Callable[[ResponsesBody], tuple[ResponsesRequest, list[PromptRequest]]]:
        def prepare(body: ResponsesBody) -> tuple[ResponsesRequest, list[PromptRequest]]:
            asked = responses_request(body, self._host)
            return asked, model.prompt_requests(asked.call)

        return prepare

    def _completion(
        self, model: ChatModel
    ) -> Callable[[CompletionsBody], tuple[CompletionsRequest, list[PromptRequest]]]:
        def prepare(body: CompletionsBody) -> tuple[CompletionsRequest, list[PromptRequest]]:
            asked = completions_request(body, self._host, model.limit)
            return asked, model.completion_requests(
                asked.prompts, asked.request, asked.shape, asked.num_answers
            )

        return prepare


def error_event(error: ApiError) -> bytes:
    """Returns the event of an error within a stream."""
    return data_event(openai_body(error))
