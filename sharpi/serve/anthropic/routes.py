"""The routes of Anthropic's API."""

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sharpi.serve.anthropic.request import read_count_request, read_messages_request
from sharpi.serve.anthropic.stream import message_events, whole_message
from sharpi.serve.chat.chat_model import ChatModels
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.errors import ApiError, anthropic_body
from sharpi.serve.http.event_stream import event_stream, named_event
from sharpi.serve.http.json_body import json_body


def routes(host: ModelHost, chats: ChatModels) -> list[Route]:
    """Returns the routes of one host."""
    api = AnthropicRoutes(host, chats)
    return [
        Route("/v1/messages", api.messages, methods=["POST"]),
        Route("/v1/messages/count_tokens", api.count_tokens, methods=["POST"]),
    ]


class AnthropicRoutes:
    """Answers the routes of Anthropic's API."""

    def __init__(self, host: ModelHost, chats: ChatModels) -> None:
        self._host, self._chats = host, chats

    async def messages(self, request: Request) -> Response:
        """Answers a conversation with the next message."""
        body, model = await json_body(request), await self._chats.get()
        asked = read_messages_request(body, self._host)
        [prompt_request] = await asyncio.to_thread(model.prompt_requests, asked.call)
        if asked.is_stream:
            events = message_events(self._host, prompt_request, asked.shows_thinking)
            return await event_stream(events, error_event)
        return JSONResponse(await whole_message(self._host, prompt_request, asked.shows_thinking))

    async def count_tokens(self, request: Request) -> Response:
        """Counts the tokens of a conversation's prompt."""
        body, model = await json_body(request), await self._chats.get()
        call = read_count_request(body, self._host)
        ids = await asyncio.to_thread(lambda: model.memory.ids_of(model.prompt(call)))
        return JSONResponse({"input_tokens": len(ids)})


def error_event(error: ApiError) -> bytes:
    """Returns the event of an error within a stream."""
    return named_event(anthropic_body(error))
