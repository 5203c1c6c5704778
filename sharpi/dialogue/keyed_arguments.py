"""Arguments as separate keys and unquoted values: their types, and their conversion to JSON."""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from msgspec import Struct

from sharpi.dialogue.answer_text import AnswerEvent, AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import arguments_schema
from sharpi.dialogue.json_call import json_value, pass_text
from sharpi.dialogue.tools import Tool

_MAX_REFERENCES = 16
_EMPTY = {"array": "[]", "object": "{}"}


def property_schema(tool: Tool | None, key: str) -> Mapping[str, Any]:
    """Returns the JSON schema of a tool's argument; empty if the tool does not define it."""
    properties = tool.parameters.get("properties") if tool else None
    schema = properties.get(key) if isinstance(properties, Mapping) else None
    for _ in range(_MAX_REFERENCES):
        if not isinstance(schema, Mapping) or "$ref" not in schema or tool is None:
            break
        schema = _referenced(tool.parameters, schema["$ref"])
    return schema if isinstance(schema, Mapping) else {}


def may_be_text(schema: Mapping[str, Any]) -> bool:
    """Returns whether a schema allows strings."""
    types = _types(schema)
    return not types or "string" in types


def json_text(text: str, schema: Mapping[str, Any]) -> str:
    """Returns the JSON text of an unquoted value.

    If the schema names the type string, the value is a string, or null where the schema allows
    null. Otherwise, it is a string only if the text is not valid JSON.
    """
    types = _types(schema)
    word = text.strip()
    if "string" in types and not (word in ("null", "None") and "null" in types):
        return json.dumps(text, ensure_ascii=False)
    if types and word.lower() in ("true", "false", "none"):
        word = word.capitalize()
    if not word and (empty := types & _EMPTY.keys()):
        return _EMPTY[empty.pop()]
    try:
        return json.dumps(json_value(word), ensure_ascii=False)
    except (ValueError, RecursionError):
        return json.dumps(text, ensure_ascii=False)


def _types(schema: Mapping[str, Any]) -> set[str]:
    """Returns the names of the types that a schema allows; empty if it does not limit them."""
    said = schema.get("type")
    if isinstance(said, str):
        return {said}
    if isinstance(said, list):
        return set(map(str, said))
    choices = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if choices:
        return set().union(*(_types(choice) for choice in choices if isinstance(choice, Mapping)))
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return {"string"} if values and all(isinstance(value, str) for value in values) else set()


def _referenced(root: Mapping[str, Any], reference: Any) -> Any:
    """Returns the schema that a reference within `root` points to; None if it does not exist."""
    found: Any = root
    for step in str(reference).removeprefix("#/").split("/"):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


class KeyedArguments:
    """Converts the arguments of the newest call to JSON events; strings stream as they arrive."""

    def __init__(self, calls: Calls, name: str) -> None:
        self._calls, self._tool = calls, calls.tools.get(name)
        self._count = 0

    def schema(self, key: str) -> Mapping[str, Any]:
        """Returns the JSON schema of an argument; empty if the tool does not define it."""
        return property_schema(self._tool, key)

    def is_text(self, key: str) -> bool:
        """Returns whether an argument can only be a string."""
        return _types(self.schema(key)) == {"string"}

    def json(self, key: str, value: str) -> AnswerEvent:
        """Returns the event of an argument with the JSON text of its value."""
        opening = "{" if self._count == 0 else ", "
        self._count += 1
        return self._calls.arguments(f"{opening}{json.dumps(key, ensure_ascii=False)}: {value}")

    def pass_value(
        self, source: AnswerText, key: str, closings: Collection[str], says_text: bool = False
    ) -> Steps[bool]:
        """Yields a key, and the value that is read up to one of the closing tags, as JSON events.

        `says_text`: the model says that it is a string. Returns False if the answer ends before a
        closing tag.
        """
        schema = self.schema(key)
        if self.is_text(key) or (says_text and not _types(schema)):
            yield self.json(key, "")
            return (yield from pass_text(source, self._calls.arguments, closings))
        text, closing = yield from source.read_until(closings)
        if text.strip() or may_be_text(schema):  # models leave out a value between its tags
            yield self.json(key, json_text(text, schema))
        return closing is not None

    def end(self) -> Iterator[AnswerEvent]:
        """Yields the event that closes the JSON object after the last argument."""
        yield self._calls.arguments("}" if self._count else "{}")


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
