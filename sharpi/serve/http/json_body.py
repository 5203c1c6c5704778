"""Parses the JSON body of a request."""

import json
from typing import NoReturn

from starlette.requests import Request

from sharpi.serve.http.errors import invalid_request

_SURROGATE = b"\\ud"


async def json_body(request: Request) -> object:
    """Returns the body's value; raises ApiError if it is not JSON, or valid only in Python.

    Lone surrogates, which cut texts may have at their ends, become U+FFFD.
    """
    body = await request.body()
    try:
        value: object = json.loads(body, parse_constant=_refuse)
        return _without_halves(value) if _SURROGATE in body.lower() else value
    except (ValueError, RecursionError) as error:
        raise invalid_request(f"the body is not JSON: {str(error)[:200]}") from None


def _without_halves(value: object) -> object:
    text = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")
    whole: object = json.loads(text.decode("utf-16", "replace"))
    return whole


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")
