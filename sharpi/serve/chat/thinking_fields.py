"""Reads the limits of reasoning, and more variables for the chat template."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from sharpi.serve.http.request_fields import RequestFields

_MAX_BUDGET = 2**31 - 1
_RESERVED = ("messages", "tools", "documents", "add_generation_prompt")
# Templates with an effort know three of them: low, medium and high.
_EFFORTS = {
    "none": None,
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}


class Thinking(Struct, frozen=True):
    """The limits of reasoning."""

    is_enabled: bool | None = None  # None leaves it to the template
    budget: int | None = None  # tokens of reasoning at most
    # More variables for the chat template.
    template_values: Mapping[str, Any] = field(default_factory=dict)


def read_thinking(fields: RequestFields, effort: str | None = None) -> Thinking:
    """Reads OpenAI's effort and the similar fields of other servers."""
    values = dict(fields.mapping("chat_template_kwargs") or {})
    if any(name in values for name in _RESERVED):
        fields.fail("chat_template_kwargs", f"must not set {', '.join(_RESERVED)}")
    is_enabled = _first(fields.flag("enable_thinking"), values.pop("enable_thinking", None))
    if not isinstance(is_enabled, bool | None):
        fields.fail("chat_template_kwargs", "must have a boolean as its enable_thinking")
    if effort is not None:
        is_enabled = _first(is_enabled, False if effort == "none" else None)
        values = effort_values(fields, effort) | values
    return Thinking(is_enabled, fields.integer("thinking_budget", 0, _MAX_BUDGET), values)


def effort_values(fields: RequestFields, effort: str) -> dict[str, Any]:
    """Returns the template's variable for an effort; raises ApiError for an unknown one."""
    if effort not in _EFFORTS:
        fields.fail("reasoning_effort", f"must be one of {', '.join(_EFFORTS)}")
    known = _EFFORTS[effort]
    return {"reasoning_effort": known} if known else {}


def _first(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value
