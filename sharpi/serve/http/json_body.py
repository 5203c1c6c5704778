"""The JSON in a request's body."""

import json
from typing import NoReturn

from starlette.requests import Request

from sharpi.serve.http.errors import invalid_request

_SURROGATE = b"\\ud"


async def json_body(request: Request) -> object:
    """Its value; raises ApiError for what is no JSON, or only Python's.

    Halves of characters, which texts that were cut may have at their ends, become U+FFFD.
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
    raise ValueError(f"{constant} is no JSON number")
