"""Converts values that a model writes as unquoted text to JSON, by the tool's schema."""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from sharpi.dialogue.tools import Tool

_MAX_REFERENCES = 16
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}


def property_schema(tool: Tool | None, key: str) -> Mapping[str, Any]:
    """Returns the JSON schema of a tool's argument; empty if the tool does not define it."""
    properties = tool.parameters.get("properties") if tool else None
    schema = properties.get(key) if isinstance(properties, Mapping) else None
    for _ in range(_MAX_REFERENCES):
        if not isinstance(schema, Mapping) or "$ref" not in schema or tool is None:
            break
        schema = _referenced(tool.parameters, schema["$ref"])
    return schema if isinstance(schema, Mapping) else {}


def is_text(schema: Mapping[str, Any]) -> bool:
    """Returns whether a schema allows only strings, so that text such as `3` is a string."""
    return _types(schema) == {"string"}


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
    word = _PYTHON_WORDS.get(word, word)
    if "string" in types and not (word == "null" and "null" in types):
        return json.dumps(text, ensure_ascii=False)
    try:
        return json.dumps(json.loads(word, parse_constant=_refuse), ensure_ascii=False)
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


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")
