"""The tools of a request, whichever API it speaks."""

from collections.abc import Callable

from sharpi.dialogue.tools import Tool
from sharpi.serve.http.request_fields import RequestFields

_MAX_TOOLS = 256


def wants_strict_calls(fields: RequestFields) -> bool:
    """Whether a tool of a request is to be called by its schema alone."""
    tools = [tool.get("function", tool) for tool in fields.items("tools") or ()]
    return any(isinstance(tool, dict) and tool.get("strict") is True for tool in tools)


def each_tool(fields: RequestFields, read: Callable[[RequestFields], Tool]) -> tuple[Tool, ...]:
    """The tools of a request, as `read` takes them: not too many, no two of a name."""
    items = fields.each("tools")
    if len(items) > _MAX_TOOLS:
        fields.fail("tools", f"must have {_MAX_TOOLS} tools at most")
    tools = tuple(map(read, items))
    if len({tool.name for tool in tools}) < len(tools):
        fields.fail("tools", "has two tools with the same name")
    return tools
