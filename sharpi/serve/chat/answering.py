"""Answering: a request of any API with the form of its answers, and its handler."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sharpi.serve.chat.chat_call import PromptRequest
from sharpi.serve.chat.chat_model import ChatModel, ChatModels
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.body import Body
from sharpi.serve.http.endpoint import Handler, prepared
from sharpi.serve.http.errors import ApiError, openai_body
from sharpi.serve.http.event_stream import Events, data_event, event_stream

B = TypeVar("B", bound=Body)


class Answering(ABC):
    """The prompt requests of one request, and the responses of its API."""

    def __init__(
        self,
        host: ModelHost,
        prompt_requests: Sequence[PromptRequest],
        *,
        is_stream: bool | None,
        notes: Sequence[str] = (),
    ) -> None:
        self.host, self.prompt_requests, self.is_stream = host, prompt_requests, is_stream
        self.notes = (*notes, *prompt_requests[0].notes)

    @abstractmethod
    def events(self) -> Events:
        """Generates the answers, and yields the server-sent events of a stream."""

    @abstractmethod
    async def whole(self) -> Any:
        """Generates the answers, and returns the JSON value of a response without a stream."""

    def error_event(self, error: ApiError) -> bytes:
        """Returns the server-sent event that reports an error in a stream that has begun."""
        return data_event(openai_body(error))


def answer_handler(
    host: ModelHost,
    chats: ChatModels,
    kind: type[B],
    make: Callable[[B, ChatModel, ModelHost], Answering],
) -> Handler:
    """Returns the handler that decodes bodies of `kind`, and responds with what `make` returns.

    Both decoding and `make` run in a worker thread. The handler has the docstring of `make`.
    """

    async def respond(request: Request) -> Response:
        model = await chats.get()
        answering = await prepared(request, kind, lambda body: make(body, model, host))
        headers = host.note(answering.notes)
        if answering.is_stream:
            return await event_stream(answering.events(), answering.error_event, headers)
        return JSONResponse(await answering.whole(), headers=headers)

    respond.__doc__ = make.__doc__
    return respond
