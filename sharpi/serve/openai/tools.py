"""Reads tools and tool choice of OpenAI's APIs; chat completions nest them, responses do not."""

from typing import Literal

from msgspec.structs import replace

from sharpi.dialogue.tools import Tool, ToolChoice
from sharpi.serve.chat.tool_fields import each_tool
from sharpi.serve.http.request_fields import RequestFields

_MODES: dict[str, Literal["auto", "none", "required"]] = {
    "auto": "auto",
    "none": "none",
    "required": "required",
}
_NO_OTHER = "sharpi has no tools of its own; only functions can be called"


def read_tools(fields: RequestFields, *, nested: bool) -> tuple[Tool, ...]:
    """Reads the functions of "tools"; raises ApiError for any other kind of tool."""
    return each_tool(fields, lambda tool: _tool(tool, nested))


def read_choice(
    fields: RequestFields, tools: tuple[Tool, ...], *, nested: bool
) -> tuple[ToolChoice, tuple[Tool, ...]]:
    """Reads the choice, and returns it with the tools that it allows."""
    choice, allowed = _mode_or_tool(fields, nested)
    parallel = fields.flag("parallel_tool_calls")
    choice = replace(choice, parallel=parallel is not False)
    wanted = {choice.name} if choice.name else allowed
    if wanted is not None:
        missing = wanted - {tool.name for tool in tools}
        if missing:
            fields.fail(
                "tool_choice", f"names the tool '{min(missing)[:64]}', which is not among the tools"
            )
    if choice.mode == "required" and not tools:
        fields.fail("tool_choice", "requires a call, but there are no tools")
    if allowed is not None:
        tools = tuple(tool for tool in tools if tool.name in allowed)
    return choice, tools


def _tool(fields: RequestFields, nested: bool) -> Tool:
    fields.only("type", ("function",), _NO_OTHER)
    source = fields
    if nested:
        source = fields.fields("function") or fields.fail("function", "is required")
        fields.ignore("cache_control")
        fields.close()
    name = source.required_text("name")
    schema = source.mapping("parameters") or {"type": "object", "properties": {}}
    source.ignore("strict", "cache_control", "output_schema", "defer_loading", "allowed_callers")
    tool = Tool(name, source.text("description") or "", schema)
    source.close()
    return tool


def _mode_or_tool(fields: RequestFields, nested: bool) -> tuple[ToolChoice, set[str] | None]:
    if not isinstance(fields.raw("tool_choice"), dict):
        return ToolChoice(_MODES[fields.choice("tool_choice", _MODES) or "auto"]), None
    choice = fields.fields("tool_choice")
    assert choice is not None
    kind = choice.choice("type", ("function", "allowed_tools"))
    inner = choice.fields(kind) if nested and kind else choice
    if kind is None or inner is None:
        return fields.fail("tool_choice", "must have a type and a tool")
    if kind == "function":
        return ToolChoice("required", inner.required_text("name")), None
    required = inner.choice("mode", ("auto", "required")) == "required"
    return ToolChoice("required" if required else "auto"), _allowed(inner, nested)


def _allowed(fields: RequestFields, nested: bool) -> set[str]:
    tools = fields.each("tools")
    named = [(each.fields("function") or each) if nested else each for each in tools]
    return {each.required_text("name") for each in named}
