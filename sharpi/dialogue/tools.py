"""The tools that a model may call, and whether it has to call one."""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field


class Tool(Struct, frozen=True):
    """A function that a model may call."""

    name: str
    description: str = ""
    # The JSON schema of its arguments, an object.
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})


class ToolChoice(Struct, frozen=True):
    """The tool calls that an answer may or must have."""

    mode: Literal["auto", "none", "required"] = "auto"  # "required" forces at least one call
    name: str | None = None  # with "required", the only tool that may be called; None for any
    parallel: bool = True  # allows several calls in one answer
