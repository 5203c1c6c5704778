"""Rewrites `patternProperties` and `propertyNames` in the form that llguidance enforces.

llguidance requires that no property name matches two patterns.
"""

import re
from typing import Any

from sharpi.constraints.schema.complement_pattern import complement_pattern
from sharpi.constraints.schema.pattern import Pattern
from sharpi.constraints.schema.references import Schema
from sharpi.errors import GrammarError

_FINITE = re.compile(r"\^[^.*+\\]*\$")  # such a pattern may match only a few texts
_MAX_NAMES = 16
_NO_NAME = r"^[^\s\S]$"
_UNIVERSAL = frozenset(["", ".*", "^"])


def list_few_names(schema: dict[str, Any]) -> None:
    """Replaces each pattern that matches only a few names by entries of `properties`."""
    patterns, known = schema["patternProperties"], dict(schema.get("properties", {}))
    rest = {}
    for pattern, each in patterns.items():
        names = _few_names(pattern)
        for name in names or ():
            known[name] = {"allOf": [each, known[name]]} if name in known else each
        if names is None:
            rest[pattern] = each
    if len(rest) < len(patterns):
        schema["properties"] = known
        if rest:
            schema["patternProperties"] = rest
        else:
            del schema["patternProperties"]


def _few_names(pattern: str) -> list[str] | None:
    if _FINITE.fullmatch(pattern) is None:
        return None
    try:
        return Pattern(pattern).texts(_MAX_NAMES)
    except GrammarError:
        return None  # llguidance refuses the whole schema, and says why


def replace_universal_patterns(schema: dict[str, Any]) -> None:
    """Replaces patterns that match every name by `additionalProperties`.

    Does nothing if some pattern does not match every name.
    """
    patterns = schema.get("patternProperties")
    if patterns is None or not set(patterns) <= _UNIVERSAL:
        return
    every, known = list(patterns.values()), schema.get("properties", {})
    schema["properties"] = {name: {"allOf": [each, *every]} for name, each in known.items()}
    schema["additionalProperties"] = {"allOf": every} if len(every) > 1 else every[0]
    del schema["patternProperties"]


def pattern_of_names(names: Schema) -> str | None:
    """Returns a pattern for the names that a `propertyNames` schema allows; None if it allows all.

    Raises GrammarError for schemas that no pattern can replace.
    """
    if not isinstance(names, dict):
        return None if names else _NO_NAME
    if "enum" in names or "const" in names:
        values = names.get("enum", [names.get("const")])
        texts = [re.escape(value) for value in values if isinstance(value, str)]
        return f"^({'|'.join(texts)})$"
    if {"not"} == set(names) and isinstance(names["not"], dict):
        inner = names["not"]
        if set(inner) & {"enum", "const", "pattern"}:
            return complement_pattern(str(pattern_of_names(inner))) or _NO_NAME
    if "pattern" in names and not {"minLength", "maxLength"} & set(names):
        return str(names["pattern"])
    if {"minLength", "maxLength"} & set(names) and "pattern" not in names:
        return rf"^[\s\S]{{{names.get('minLength', 0)},{names.get('maxLength', '')}}}$"
    if set(names) <= {"type", "format", "title", "description", "$comment"}:
        return None
    raise GrammarError("not supported in a JSON schema: propertyNames of this kind")
