"""/tokenize and /detokenize: text to ids and back, with the fields of llama.cpp's server."""

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.json_body import json_body
from sharpi.serve.http.request_fields import RequestFields

_MAX_ID = 2**31 - 1


def routes(host: ModelHost) -> list[Route]:
    """Returns the token routes of one host."""
    tokens = TokenRoutes(host)
    return [
        Route("/tokenize", tokens.tokenize, methods=["POST"]),
        Route("/detokenize", tokens.detokenize, methods=["POST"]),
    ]


class TokenRoutes:
    """Answers the two routes."""

    def __init__(self, host: ModelHost) -> None:
        self._host = host

    async def tokenize(self, request: Request) -> Response:
        """Turns {"content", "add_special": false, "parse_special": true} into {"tokens"}."""
        fields = RequestFields(await json_body(request))
        text = fields.raw("content")
        if not isinstance(text, str):
            fields.fail("content", "must be a string")
        adds, parses = fields.flag("add_special") or False, fields.flag("parse_special")
        fields.ignore("model")
        fields.close()
        tokenizer = (await self._host.ready()).engine.tokenizer
        ids = await asyncio.to_thread(
            tokenizer.encode,
            text,
            add_bos=adds and tokenizer.add_bos,
            parse_special=parses is not False,
        )
        return JSONResponse({"tokens": ids})

    async def detokenize(self, request: Request) -> Response:
        """Turns {"tokens"} into {"content"}, with control tokens shown."""
        fields = RequestFields(await json_body(request))
        ids = fields.items("tokens")
        if ids is None or not all(map(_is_id, ids)):
            fields.fail("tokens", "must be a list of token ids")
        fields.ignore("model")
        fields.close()
        tokenizer = (await self._host.ready()).engine.tokenizer
        text = await asyncio.to_thread(tokenizer.decode, ids, show_special=True)
        return JSONResponse({"content": text})


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_ID
