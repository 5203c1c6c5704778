"""Builds the OpenAPI document, /openapi.json, from the endpoints and the types of their bodies."""

import asyncio
import inspect
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sharpi import __version__
from sharpi.serve.http.endpoint import Endpoint

_REFERENCE = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")
_ERROR = {
    "description": "A refusal or a failure, in the form of the path's API.",
    "content": {"application/json": {"schema": {"$ref": _REFERENCE.format(name="Error")}}},
}
_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type"],
            "properties": {"message": {"type": "string"}, "type": {"type": "string"}},
        }
    },
}


def openapi_endpoint(endpoints: Sequence[Endpoint]) -> Endpoint:
    """Returns GET /openapi.json, built when it is first asked for, as that takes long."""
    document = cache(lambda: openapi_document(endpoints))

    async def openapi(request: Request) -> Response:
        """Describes the server's endpoints and what their bodies may hold."""
        return JSONResponse(await asyncio.to_thread(document))

    return Endpoint("GET", "/openapi.json", openapi)


def openapi_document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Returns the OpenAPI 3.1 document of all public endpoints."""
    described = [each for each in endpoints if each.is_public]
    bodies = [each.body for each in described if each.body is not None]
    schemas, components = msgspec.json.schema_components(bodies, ref_template=_REFERENCE)
    schema_of = dict(zip(bodies, schemas, strict=True))
    paths: dict[str, Any] = {}
    for each in described:
        path = _PARAMETER.sub(r"{\1}", each.path)
        schema = None if each.body is None else schema_of[each.body]
        paths.setdefault(path, {})[each.method.lower()] = _operation(each, schema)
    return {
        "openapi": "3.1.0",
        "info": {"title": "sharpi", "version": __version__},
        "paths": paths,
        "components": {"schemas": {**components, "Error": _ERROR_SCHEMA}},
    }


def _operation(endpoint: Endpoint, schema: dict[str, Any] | None) -> dict[str, Any]:
    summary = (inspect.getdoc(endpoint.respond) or "").partition("\n")[0]
    content: dict[str, Any] = {
        "text/plain" if endpoint.path == "/metrics" else "application/json": {}
    }
    if endpoint.streams:
        content["text/event-stream"] = {}
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {"200": {"description": "The answer.", "content": content}, "default": _ERROR},
    }
    names = _PARAMETER.findall(endpoint.path)
    if names:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ]
    if schema is not None:
        body = {"content": {"application/json": {"schema": schema}}, "required": True}
        operation["requestBody"] = body
    return operation
