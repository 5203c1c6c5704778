"""The endpoints of Anthropic's API."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sharpi.serve.anthropic.bodies import CountBody, MessagesBody
from sharpi.serve.anthropic.request import MessagesRequest, counted_call, messages_request
from sharpi.serve.anthropic.stream import message_events, whole_message
from sharpi.serve.chat.chat_call import PromptRequest
from sharpi.serve.chat.chat_model import ChatModels
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.endpoint import Endpoint, prepared
from sharpi.serve.http.errors import ApiError, anthropic_body
from sharpi.serve.http.event_stream import event_stream, named_event


def endpoints(host: ModelHost, chats: ChatModels) -> list[Endpoint]:
    """Returns the endpoints of Anthropic's API."""
    api = AnthropicRoutes(host, chats)
    return [
        Endpoint("POST", "/v1/messages", api.messages, MessagesBody, ("/messages",), streams=True),
        Endpoint(
            "POST",
            "/v1/messages/count_tokens",
            api.count_tokens,
            CountBody,
            ("/messages/count_tokens",),
        ),
    ]


class AnthropicRoutes:
    """The handlers of the endpoints of Anthropic's API."""

    def __init__(self, host: ModelHost, chats: ChatModels) -> None:
        self._host, self._chats = host, chats

    async def messages(self, request: Request) -> Response:
        """Answers a conversation with the next message."""
        model = await self._chats.get()

        def prepare(body: MessagesBody) -> tuple[MessagesRequest, list[PromptRequest]]:
            asked = messages_request(body, self._host)
            return asked, model.prompt_requests(asked.call)

        asked, [prompt_request] = await prepared(request, MessagesBody, prepare)
        headers = self._host.note((*asked.call.notes, *prompt_request.notes))
        if asked.is_stream:
            events = message_events(self._host, prompt_request, asked.shows_thinking)
            return await event_stream(events, error_event, headers)
        answer = await whole_message(self._host, prompt_request, asked.shows_thinking)
        return JSONResponse(answer, headers=headers)

    async def count_tokens(self, request: Request) -> Response:
        """Counts the tokens of a conversation's prompt."""
        model = await self._chats.get()

        def count(body: CountBody) -> int:
            return len(model.memory.ids_of(model.prompt(counted_call(body, self._host))))

        return JSONResponse({"input_tokens": await prepared(request, CountBody, count)})


def error_event(error: ApiError) -> bytes:
    """Returns the server-sent event that reports an error in a stream that has begun."""
    return named_event(anthropic_body(error))
