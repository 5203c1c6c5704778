"""Parses limits that Anthropic's client library writes into the descriptions of a JSON schema.

Anthropic's service enforces few keywords of JSON Schema. So `messages.parse` of the client library
appends the remaining keywords to the description, as in `{minimum: 1, maximum: 9}`, and checks the
answer against them.
"""

import json
import re
from typing import Any

_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems")
_NOTES = (
    "default",
    "examples",
    "format",
    "deprecated",
    "readOnly",
    "writeOnly",
    "contentMediaType",
)
_ENFORCED = (*_NUMBERS, *_COUNTS, "pattern", "uniqueItems")
_LIMITS = re.compile(r"(?:^|\n\n)\{([^\n]*)\}$")
_KEY = re.compile(rf"(?:^|, )({'|'.join((*_ENFORCED, *_NOTES))}): ")


def with_limits(schema: Any) -> Any:
    """Returns a copy of a schema, with keywords that it lacks from its descriptions."""
    if isinstance(schema, list):
        return [with_limits(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: with_limits(value) for key, value in schema.items()}
    return _limits(schema.get("description")) | found


def _limits(description: Any) -> dict[str, Any]:
    if not isinstance(description, str):
        return {}
    found = _LIMITS.search(description)
    if found is None or _KEY.match(found[1]) is None:
        return {}
    parts = _KEY.split(found[1])
    pairs = {key: _value(key, text) for key, text in zip(parts[1::2], parts[2::2], strict=True)}
    return {key: value for key, value in pairs.items() if value is not None}


def _value(key: str, text: str) -> Any:
    """Parses a keyword's value as Python or JavaScript prints it; None if it is invalid."""
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if key == "pattern":
        return value if isinstance(value, str) else text
    if key == "uniqueItems":
        return True if text in ("True", "true") else None
    if key in _COUNTS:
        return value if type(value) is int else None
    return value if key in _NUMBERS and type(value) in (int, float) else None
