"""The types of tools and tool choice in OpenAI's APIs, and their conversion.

In chat completions, a tool contains its function as an object. In responses, the tool itself has
the function's fields.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import replace

from sharpi.dialogue.tools import Tool, ToolChoice
from sharpi.serve.http.body import Body, Ignored
from sharpi.serve.http.body_faults import raise_invalid

MAX_TOOLS = 256
Mode = Literal["auto", "none", "required"]
_Function = Annotated[
    Literal["function"],
    Meta(extra={"why": "sharpi has no tools of its own; only functions can be called"}),
]


class FunctionBody(Body):
    """A function with the JSON schema of its arguments."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    cache_control: Ignored = None
    output_schema: Ignored = None
    defer_loading: Ignored = None
    allowed_callers: Ignored = None


class ToolBody(Body):
    """A tool of chat completions."""

    function: FunctionBody
    type: _Function | None = None
    cache_control: Ignored = None


class FlatToolBody(FunctionBody):
    """A tool of the responses API."""

    type: _Function | None = None


class NamedTool(Body):
    """The name of a tool."""

    name: str


class AllowedTool(Body):
    """One of the tools that may be called, by its name."""

    type: Ignored = None
    name: str | None = None
    function: NamedTool | None = None


class AllowedTools(Body):
    """The tools that may be called."""

    tools: list[AllowedTool]
    mode: Literal["auto", "required"] | None = None


class ChoiceBody(Body):
    """The tool that must be called, or the tools that may be called."""

    type: Literal["function", "allowed_tools"]
    name: str | None = None
    function: NamedTool | None = None
    mode: Literal["auto", "required"] | None = None
    tools: list[AllowedTool] | None = None
    allowed_tools: AllowedTools | None = None


def tools_of(bodies: Sequence[ToolBody | FlatToolBody] | None) -> tuple[Tool, ...]:
    """Converts the functions; raises ApiError for an empty name or two equal names."""
    tools = []
    for index, body in enumerate(bodies or ()):
        nested = isinstance(body, ToolBody)
        function = body.function if isinstance(body, ToolBody) else body
        if not function.name.strip():
            raise_invalid(
                f"tools[{index}].{'function.' if nested else ''}name", "must not be empty"
            )
        schema = function.parameters or {"type": "object", "properties": {}}
        tools.append(Tool(function.name, function.description or "", schema))
    if len({tool.name for tool in tools}) < len(tools):
        raise_invalid("tools", "has two tools with the same name")
    return tuple(tools)


def has_strict_tool(bodies: Sequence[ToolBody | FlatToolBody] | None) -> bool:
    """Returns whether a tool is marked as strict."""
    functions = (each.function if isinstance(each, ToolBody) else each for each in bodies or ())
    return any(function.strict for function in functions)


def choice_of(
    body: Mode | ChoiceBody | None, parallel: bool | None, tools: tuple[Tool, ...]
) -> tuple[ToolChoice, tuple[Tool, ...]]:
    """Converts `tool_choice`; returns it with the tools that it allows.

    Raises ApiError if it names a tool that is not in `tools`.
    """
    choice, allowed = _mode_or_tool(body)
    choice = replace(choice, parallel=parallel is not False)
    wanted = {choice.name} if choice.name else allowed
    if wanted is not None:
        missing = wanted - {tool.name for tool in tools}
        if missing:
            message = f"names the tool '{min(missing)[:64]}', which is not among the tools"
            raise_invalid("tool_choice", message)
    if choice.mode == "required" and not tools:
        raise_invalid("tool_choice", "requires a call, but there are no tools")
    if allowed is not None:
        tools = tuple(tool for tool in tools if tool.name in allowed)
    return choice, tools


def _mode_or_tool(body: Mode | ChoiceBody | None) -> tuple[ToolChoice, set[str] | None]:
    if not isinstance(body, ChoiceBody):
        return ToolChoice(body or "auto"), None
    if body.type == "function":
        name = body.function.name if body.function is not None else body.name
        return ToolChoice(
            "required", name or raise_invalid("tool_choice", "must have a tool's name")
        ), None
    mode, tools = body.mode, body.tools
    if body.allowed_tools is not None:
        mode, tools = body.allowed_tools.mode, body.allowed_tools.tools
    if tools is None:
        raise_invalid("tool_choice", "must have a type and a tool")
    names = {each.name if each.function is None else each.function.name for each in tools}
    if None in names:
        raise_invalid("tool_choice", "has a tool without a name")
    allowed = {name for name in names if name is not None}
    return ToolChoice("required" if mode == "required" else "auto"), allowed
