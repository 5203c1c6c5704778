"""Reads the tools of a request, independent of the API."""

from collections.abc import Callable

from sharpi.dialogue.tools import Tool
from sharpi.serve.http.request_fields import RequestFields

_MAX_TOOLS = 256


def wants_strict_calls(fields: RequestFields) -> bool:
    """Returns whether a tool of the request is marked as strict."""
    tools = [tool.get("function", tool) for tool in fields.items("tools") or ()]
    return any(isinstance(tool, dict) and tool.get("strict") is True for tool in tools)


def each_tool(fields: RequestFields, read: Callable[[RequestFields], Tool]) -> tuple[Tool, ...]:
    """Reads each tool with `read`; refuses too many tools, and two of the same name."""
    items = fields.each("tools")
    if len(items) > _MAX_TOOLS:
        fields.fail("tools", f"must have {_MAX_TOOLS} tools at most")
    tools = tuple(map(read, items))
    if len({tool.name for tool in tools}) < len(tools):
        fields.fail("tools", "has two tools with the same name")
    return tools
