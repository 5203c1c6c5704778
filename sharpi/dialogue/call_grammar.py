"""CallGrammar: writes a Lark grammar, in llguidance's dialect, of an answer that calls a tool."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sharpi.dialogue.tools import Tool
from sharpi.tokenizer.tokenizer import Tokenizer

# Python's JSON spacing, which templates' examples have. Without free white space, no answer can
# consist of blanks. Keywords that llguidance lacks are left out, and named in its warnings.
_OPTIONS = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "coerce_one_of": True,
    "lenient": True,
}
_COMBINED = ("additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "$ref")


class CallGrammar:
    """Collects grammar rules; most methods return an expression that others can contain.

    `markers`: the markers of the tool format. A marker that is a token of the vocabulary is written
    as this token, not as text.
    """

    def __init__(self, tokenizer: Tokenizer, markers: Iterable[str]) -> None:
        tokens = {marker: tokenizer.id_of(marker) for marker in markers}
        self._tokens = {marker: token for marker, token in tokens.items() if token is not None}
        self._control = {m for m, token in self._tokens.items() if tokenizer.is_hidden(token)}
        self._rules: list[str] = []

    def literal(self, text: str) -> str:
        """Returns an expression for exactly this text, with markers as tokens."""
        any_marker = "|".join(map(re.escape, sorted(self._tokens, reverse=True)))
        parts = re.split(f"({any_marker})", text) if any_marker else [text]
        tokens = self._tokens
        return " ".join(f"<[{tokens[p]}]>" if p in tokens else _quoted(p) for p in parts if p)

    def text_until(self, closing: str) -> str:
        """Returns an expression for any text up to and including the first `closing`."""
        marked = closing.lstrip()
        if any(marked.startswith(marker) for marker in self._control):
            return f"/(?s:.*)/ {self.literal(marked)}"
        return self.rule("/(?s:.*)/", f"[suffix={_quoted(closing)}]")

    def json(self, schema: Mapping[str, Any]) -> str:
        """Returns an expression for a JSON value that matches a schema."""
        text = json.dumps({**schema, "x-guidance": _OPTIONS}, ensure_ascii=False)
        return self.rule(f"%json {text}")

    def arguments(self, tool: Tool) -> str:
        """Returns an expression for the JSON object of a tool's arguments, with no other ones."""
        return self.json(arguments_schema(tool.parameters))

    def listed(self, items: Sequence[tuple[str, bool]], separator: str) -> str:
        """Returns an expression for a list of items in order, with a separator between them.

        `items`: pairs of an item's expression and a flag, whether the item is required.
        """
        after = self.literal(separator)
        tails = [f"{after} {item}" if needed else f"({after} {item})?" for item, needed in items]
        first = next((n for n, (_, needed) in enumerate(items) if needed), len(items) - 1)
        starts = [
            " ".join([item, *tails[number + 1 :]])
            for number, (item, _) in enumerate(items[: first + 1])
        ]
        if not starts:
            return ""
        may_be_empty = "" if any(needed for _, needed in items) else "?"
        return f"({' | '.join(starts)}){may_be_empty}"

    def rule(self, body: str, options: str = "") -> str:
        """Adds a rule and returns its name."""
        name = f"part_{len(self._rules)}"
        self._rules.append(f"{name}{options}: {body}")
        return name

    def text(self, start: str) -> str:
        """Returns the text of the grammar, with `start` as the expression of its start rule."""
        return "\n".join([f"start: {start}", *self._rules]) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def arguments_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the JSON schema of a tool's arguments: an object with only the listed properties."""
    schema = {"type": "object", **parameters}
    if "properties" in schema and not any(key in schema for key in _COMBINED):
        schema["additionalProperties"] = False
    return schema
