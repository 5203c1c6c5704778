"""The JSON object in a request's body."""

import json
from typing import Any, NoReturn

from starlette.requests import Request

from sharpi.serve.errors import invalid_request


async def json_object(request: Request) -> dict[str, Any]:
    """Its members; raises ApiError for what is no JSON, only Python's, or no object."""
    try:
        value = json.loads(await request.body(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise invalid_request(f"the body is not JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise invalid_request("the body must be a JSON object")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")
