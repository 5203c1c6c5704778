"""Reads tools and tool choice of Anthropic's API."""

from typing import Literal

from sharpi.dialogue.tools import Tool, ToolChoice
from sharpi.serve.chat.tool_fields import each_tool
from sharpi.serve.http.request_fields import RequestFields

_MODES: dict[str, Literal["auto", "none", "required"]] = {
    "auto": "auto",
    "any": "required",
    "tool": "required",
    "none": "none",
}
# Fields for the client or for Anthropic's servers; the model does not read them.
_HARMLESS = (
    "cache_control",
    "strict",
    "eager_input_streaming",
    "defer_loading",
    "allowed_callers",
    "input_examples",
)


def read_tools(fields: RequestFields) -> tuple[Tool, ...]:
    """Reads the client's tools; raises ApiError for those that Anthropic's servers would run."""
    return each_tool(fields, _tool)


def read_choice(fields: RequestFields, tools: tuple[Tool, ...]) -> ToolChoice:
    """Reads which tool must be called, if any."""
    choice = fields.fields("tool_choice")
    if choice is None:
        return ToolChoice()
    kind = choice.choice("type", _MODES) or choice.fail("type", "is required")
    name = choice.required_text("name") if kind == "tool" else None
    if name is not None and name not in {tool.name for tool in tools}:
        choice.fail("name", f"'{name[:64]}' is not among the tools")
    if _MODES[kind] == "required" and not tools:
        fields.fail("tool_choice", "requires a call, but there are no tools")
    parallel = not choice.flag("disable_parallel_tool_use")
    choice.close()
    return ToolChoice(_MODES[kind], name, parallel)


def _tool(fields: RequestFields) -> Tool:
    fields.only("type", ("custom",), "sharpi has no tools of its own; clients run theirs")
    fields.ignore(*_HARMLESS)
    schema = fields.mapping("input_schema")
    if schema is None:
        fields.fail("input_schema", "is required")
    tool = Tool(fields.required_text("name"), fields.text("description") or "", schema)
    fields.close()
    return tool
