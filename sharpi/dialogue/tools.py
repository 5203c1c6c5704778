"""Tools that a model may call, and whether it has to."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from sharpi.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Tool:
    """A function; `parameters` is the JSON schema of its arguments, an object."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """`mode` "required" makes at least one call certain, of the tool `name` if it is given.

    Without `parallel` an answer has one call at most.
    """

    mode: Literal["auto", "none", "required"] = "auto"
    name: str | None = None
    parallel: bool = True
