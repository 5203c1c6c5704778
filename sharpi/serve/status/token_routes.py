"""/tokenize and /detokenize: convert text to ids and back, in the form of llama.cpp's server."""

from typing import Annotated

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sharpi.serve.chat.chat_model import ChatModels
from sharpi.serve.http.body import Body
from sharpi.serve.http.endpoint import Endpoint, prepared

TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class TokenizeBody(Body):
    """A text to tokenize."""

    content: str
    add_special: bool | None = None  # begins with BOS if the model expects it
    parse_special: bool | None = None  # true unless set to false


class DetokenizeBody(Body):
    """Token ids to turn into text, with control tokens shown."""

    tokens: list[TokenId]


def endpoints(chats: ChatModels) -> list[Endpoint]:
    """Returns the endpoints /tokenize and /detokenize."""
    tokens = TokenRoutes(chats)
    return [
        Endpoint("POST", "/tokenize", tokens.tokenize, TokenizeBody),
        Endpoint("POST", "/detokenize", tokens.detokenize, DetokenizeBody),
    ]


class TokenRoutes:
    """The handlers of /tokenize and /detokenize."""

    def __init__(self, chats: ChatModels) -> None:
        self._chats = chats

    async def tokenize(self, request: Request) -> Response:
        """Turns a text into token ids; refuses a text that is longer than any prompt."""
        limit = (await self._chats.get()).limit

        def tokenize(body: TokenizeBody) -> list[int]:
            adds, parses = body.add_special or False, body.parse_special is not False
            add_bos = adds and limit.tokenizer.add_bos
            return limit.encode(body.content, add_bos=add_bos, parse_special=parses)

        return JSONResponse({"tokens": await prepared(request, TokenizeBody, tokenize)})

    async def detokenize(self, request: Request) -> Response:
        """Turns token ids into a text."""
        tokenizer = (await self._chats.get()).tokenizer

        def detokenize(body: DetokenizeBody) -> str:
            return tokenizer.decode(body.tokens, show_special=True)

        return JSONResponse({"content": await prepared(request, DetokenizeBody, detokenize)})
