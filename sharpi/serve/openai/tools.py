"""Converts the tools and tool choices of OpenAI's APIs."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sharpi.dialogue.tools import Tool, ToolChoice
from sharpi.serve.http.errors import raise_invalid
from sharpi.serve.openai.bodies import ChoiceBody, FunctionBody, Mode, ToolBody

# A custom tool takes one text, which a model writes as the argument of a function.
CUSTOM_ARGUMENT = "input"
_CUSTOM: dict[str, Any] = {
    "type": "object",
    "properties": {CUSTOM_ARGUMENT: {"type": "string"}},
    "required": [CUSTOM_ARGUMENT],
}


class OfferedTools(Struct, frozen=True):
    """The tools that the model may call, and those that only another server could run."""

    tools: tuple[Tool, ...] = ()
    custom: frozenset[str] = frozenset()  # the names of tools that take a text
    is_strict: bool = False  # a tool is marked as strict
    left_out: tuple[str, ...] = ()  # types of tools that are not offered


def tools_of(bodies: Sequence[ToolBody] | None) -> OfferedTools:
    """Converts the tools; raises ApiError for an empty name or two equal names."""
    tools: dict[str, Tool] = {}
    custom, left_out, is_strict = set(), [], False
    for path, body, in_namespace in _flat(bodies or ()):
        function = _function_of(body)
        if function is None:
            left_out.append(body.type)
            continue
        if not function.name.strip():
            raise_invalid(f"{path}.name", "must not be empty")
        if function.name in tools:
            if in_namespace:
                continue
            raise_invalid("tools", "has two tools with the same name")
        schema = function.parameters or {"type": "object", "properties": {}}
        tools[function.name] = Tool(function.name, function.description or "", schema)
        is_strict |= bool(function.strict)
        if body.type == "custom":
            custom.add(function.name)
    return OfferedTools(tuple(tools.values()), frozenset(custom), is_strict, tuple(left_out))


def _flat(bodies: Iterable[ToolBody]) -> Iterator[tuple[str, ToolBody, bool]]:
    """Yields the tools with their paths, and those within a namespace in its place."""
    for index, body in enumerate(bodies):
        if body.type == "namespace":
            yield from (
                (f"tools[{index}].{path}", inner, True)
                for path, inner, _ in _flat(body.tools or ())
            )
        else:
            yield f"tools[{index}]", body, False


def _function_of(body: ToolBody) -> FunctionBody | None:
    """Returns the function of a tool; None for a tool that a server would have to run."""
    if body.type == "custom":
        return FunctionBody(name=body.name or "", description=body.description, parameters=_CUSTOM)
    if body.type != "function":
        return None
    return body.function or FunctionBody(
        name=body.name or "",
        description=body.description,
        parameters=body.parameters,
        strict=body.strict,
    )


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
    if body.type in ("function", "custom"):
        name = body.function.name if body.function is not None else body.name
        return ToolChoice(
            "required", name or raise_invalid("tool_choice", "must have a tool's name")
        ), None
    if body.type != "allowed_tools":
        raise_invalid("tool_choice.type", f"'{body.type[:40]}' is no tool that the model can call")
    mode, tools = body.mode, body.tools
    if body.allowed_tools is not None:
        mode, tools = body.allowed_tools.mode, body.allowed_tools.tools
    names = {each.name if each.function is None else each.function.name for each in tools or ()}
    allowed = {name for name in names if name is not None}
    if not allowed:
        raise_invalid("tool_choice", "must have the names of tools")
    return ToolChoice("required" if mode == "required" else "auto"), allowed
