"""The endpoints of Anthropic's API."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sharpi.serve.anthropic.bodies import CountBody, MessagesBody
from sharpi.serve.anthropic.request import counted_call
from sharpi.serve.anthropic.stream import Messages
from sharpi.serve.chat.answering import answer_handler
from sharpi.serve.chat.chat_model import ChatModels
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.endpoint import Endpoint, prepared


def endpoints(host: ModelHost, chats: ChatModels) -> list[Endpoint]:
    """Returns the endpoints of Anthropic's API."""

    async def count_tokens(request: Request) -> Response:
        """Counts the tokens of a conversation's prompt."""
        model = await chats.get()

        def count(body: CountBody) -> int:
            return len(model.memory.ids_of(model.prompt(counted_call(body, host))))

        return JSONResponse({"input_tokens": await prepared(request, CountBody, count)})

    respond = answer_handler(host, chats, MessagesBody, Messages)
    other = ("/messages/count_tokens",)
    return [
        Endpoint("POST", "/v1/messages", respond, MessagesBody, ("/messages",), streams=True),
        Endpoint("POST", "/v1/messages/count_tokens", count_tokens, CountBody, other),
    ]
