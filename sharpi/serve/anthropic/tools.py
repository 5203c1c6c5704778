"""Converts the tools and the tool choice of Anthropic's API."""

from collections.abc import Sequence
from typing import Literal

from sharpi.dialogue.tools import Tool, ToolChoice
from sharpi.serve.anthropic.bodies import ChoiceBody, ToolBody
from sharpi.serve.http.body_faults import raise_invalid

_MODES: dict[str, Literal["auto", "none", "required"]] = {
    "auto": "auto",
    "any": "required",
    "tool": "required",
    "none": "none",
}


def tools_of(bodies: Sequence[ToolBody] | None) -> tuple[Tool, ...]:
    """Returns the client's tools; raises ApiError for an empty name or two equal names."""
    for index, body in enumerate(bodies or ()):
        if not body.name.strip():
            raise_invalid(f"tools[{index}].name", "must not be empty")
    tools = tuple(
        Tool(each.name, each.description or "", each.input_schema) for each in bodies or ()
    )
    if len({tool.name for tool in tools}) < len(tools):
        raise_invalid("tools", "has two tools with the same name")
    return tools


def choice_of(body: ChoiceBody | None, tools: tuple[Tool, ...]) -> ToolChoice:
    """Converts `tool_choice`; raises ApiError if it names a tool that is not in `tools`."""
    if body is None:
        return ToolChoice()
    name = body.name if body.type == "tool" else None
    if body.type == "tool" and name is None:
        raise_invalid("tool_choice.name", "is required")
    if name is not None and name not in {tool.name for tool in tools}:
        raise_invalid("tool_choice.name", f"'{name[:64]}' is not among the tools")
    if _MODES[body.type] == "required" and not tools:
        raise_invalid("tool_choice", "requires a call, but there are no tools")
    return ToolChoice(_MODES[body.type], name, not body.disable_parallel_tool_use)
