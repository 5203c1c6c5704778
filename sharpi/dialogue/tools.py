"""The tools that a model may call, and whether it has to call one."""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field


class Tool(Struct, frozen=True):
    """A function; `parameters` is the JSON schema of its arguments, an object."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})


class ToolChoice(Struct, frozen=True):
    """`mode` "required" makes at least one call certain, of the tool `name` if it is given.

    Without `parallel` an answer has one call at most.
    """

    mode: Literal["auto", "none", "required"] = "auto"
    name: str | None = None
    parallel: bool = True
