"""The JSON in a request's body."""

import json
from typing import NoReturn

from starlette.requests import Request

from sharpi.serve.errors import invalid_request


async def json_body(request: Request) -> object:
    """Its value; raises ApiError for what is no JSON, or only Python's."""
    try:
        value: object = json.loads(await request.body(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise invalid_request(f"the body is not JSON: {str(error)[:200]}") from None
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")
