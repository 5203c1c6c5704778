"""The paths of llama.cpp's own clients: completions, gaps, tokens and rendered templates."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sharpi.serve.chat.chat_model import ChatModels, answer_endpoint
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.endpoint import Endpoint, prepared
from sharpi.serve.llamacpp.completion import (
    Completion,
    CompletionBody,
    DetokenizeBody,
    Infill,
    InfillBody,
    TokenizeBody,
)
from sharpi.serve.openai.bodies import ChatBody
from sharpi.serve.openai.chat_request import chat_call
from sharpi.tokenizer.tokenizer import Tokenizer


def endpoints(host: ModelHost, chats: ChatModels) -> list[Endpoint]:
    """Returns the endpoints of llama.cpp's own paths."""
    tokens = TokenRoutes(host, chats)
    return [
        answer_endpoint(host, chats, ("/completion",), CompletionBody, Completion),
        answer_endpoint(host, chats, ("/infill",), InfillBody, Infill),
        Endpoint("POST", "/tokenize", tokens.tokenize, TokenizeBody),
        Endpoint("POST", "/detokenize", tokens.detokenize, DetokenizeBody),
        Endpoint("POST", "/apply-template", tokens.apply_template, ChatBody),
    ]


class TokenRoutes:
    """The handlers of /tokenize, /detokenize and /apply-template."""

    def __init__(self, host: ModelHost, chats: ChatModels) -> None:
        self._host, self._chats = host, chats

    async def tokenize(self, request: Request) -> Response:
        """Turns a text into token ids; refuses a text that is longer than any prompt."""
        limit = (await self._chats.get()).limit
        tokenizer = limit.tokenizer

        def tokenize(body: TokenizeBody) -> list[Any]:
            parses = body.parse_special is not False
            adds, ids = bool(body.add_special) and tokenizer.add_bos, list[int]()
            for part in [body.content] if isinstance(body.content, str) else body.content:
                if isinstance(part, int):
                    ids.append(part)
                else:
                    ids += limit.encode(part, add_bos=adds and not ids, parse_special=parses)
            return [_piece(tokenizer, each) for each in ids] if body.with_pieces else ids

        return JSONResponse({"tokens": await prepared(request, TokenizeBody, tokenize)})

    async def detokenize(self, request: Request) -> Response:
        """Turns token ids into a text."""
        tokenizer = (await self._chats.get()).tokenizer

        def detokenize(body: DetokenizeBody) -> str:
            return tokenizer.decode(body.tokens, show_special=True)

        return JSONResponse({"content": await prepared(request, DetokenizeBody, detokenize)})

    async def apply_template(self, request: Request) -> Response:
        """Returns the prompt of a chat, without answering it."""
        model = await self._chats.get()

        def prompt(body: ChatBody) -> str:
            return model.prompt(chat_call(body, self._host))

        return JSONResponse({"prompt": await prepared(request, ChatBody, prompt)})


def _piece(tokenizer: Tokenizer, token_id: int) -> dict[str, Any]:
    """Returns an id with its text, or with its bytes if they are not text."""
    data = tokenizer.token_bytes(token_id)
    try:
        return {"id": token_id, "piece": data.decode()}
    except UnicodeDecodeError:
        return {"id": token_id, "piece": list(data)}
