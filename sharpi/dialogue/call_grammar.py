"""CallGrammar: the Lark text, in llguidance's dialect, that makes an answer a call of a tool."""

import json
from collections.abc import Mapping
from typing import Any

from sharpi.dialogue.tools import Tool
from sharpi.tokenizer.tokenizer import Tokenizer

# As Python writes JSON, which is what the templates' own samples look like; without free white
# space no answer can consist of blanks.
_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_COMBINED = ("additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "$ref")


class CallGrammar:
    """Rules as they are collected; each method returns an expression for use in others."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._rules: list[str] = []

    def mark(self, text: str) -> str:
        """A marker: the token that has its text, where it steers the model, else its characters."""
        token_id = self._tokenizer.id_of(text)
        if token_id is None or not self._tokenizer.is_hidden(token_id):
            return self.literal(text)
        return f"<[{token_id}]>"

    def literal(self, text: str) -> str:
        """Exactly this text."""
        return json.dumps(text, ensure_ascii=False) if text else ""

    def json(self, schema: Mapping[str, Any]) -> str:
        """A JSON value by its schema."""
        text = json.dumps({**schema, "x-guidance": _SPACING}, ensure_ascii=False)
        return self.rule(f"%json {text}")

    def arguments(self, tool: Tool) -> str:
        """The JSON object of a tool's arguments: properties by their schema, and no others."""
        return self.json(arguments_schema(tool.parameters))

    def rule(self, body: str, options: str = "") -> str:
        """A rule of its own; its name."""
        name = f"part_{len(self._rules)}"
        self._rules.append(f"{name}{options}: {body}")
        return name

    def text(self, start: str) -> str:
        """The whole grammar, given where it starts."""
        return "\n".join([f"start: {start}", *self._rules]) + "\n"


def arguments_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a tool's arguments: an object, with the properties it names and no others."""
    schema = {"type": "object", **parameters}
    if "properties" in schema and not any(key in schema for key in _COMBINED):
        schema["additionalProperties"] = False
    return schema
