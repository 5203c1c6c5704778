"""The grammar of arguments as separate keys and values, in the order of the tool's schema."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from sharpi.dialogue.call_grammar import CallGrammar, arguments_schema
from sharpi.dialogue.tools import Tool
from sharpi.dialogue.typed_value import may_be_text, property_schema


class ArgumentSpec(Struct, frozen=True):
    """One argument of a tool."""

    key: str
    schema: Mapping[str, Any]  # includes the definitions that it refers to
    is_required: bool

    @property
    def words(self) -> tuple[str, ...]:
        """The strings of the schema's `enum`; empty without `enum`, or if it has other values."""
        choices = self.schema.get("enum", ())
        return tuple(choices) if all(isinstance(choice, str) for choice in choices) else ()


def values_in_order(tool: Tool) -> list[ArgumentSpec]:
    """Returns the arguments of a tool in the order of its schema."""
    schema = arguments_schema(tool.parameters)
    shared: dict[str, Any] = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    required = schema.get("required", ())
    return [
        ArgumentSpec(key, {**shared, **property_schema(tool, key)}, key in required)
        for key in schema.get("properties", {})
    ]


def keyed_expression(
    grammar: CallGrammar, tool: Tool, opening: Callable[[str, bool], str], closing: str
) -> str:
    """Returns a grammar expression for a tool's arguments.

    `opening`: returns the text before a value, from its key and whether it is a string; `closing`:
    the text after it. A value that may be a string is any text up to `closing`. Optional arguments
    may be missing.
    """
    parts = []
    for value in values_in_order(tool):
        is_text = bool(value.words) or may_be_text(value.schema)
        if value.words:
            choices = " | ".join(map(grammar.literal, value.words))
            content = f"({choices}) {grammar.literal(closing)}"
        elif is_text:
            content = grammar.text_until(closing)
        else:
            content = f"{grammar.json(value.schema)} {grammar.literal(closing)}"
        part = f"{grammar.literal(opening(value.key, is_text))} {content}"
        parts.append(part if value.is_required else f"({part})?")
    return " ".join(parts)
