"""Names of properties by pattern, in the form that llguidance enforces.

It wants patterns of which no name matches two.
"""

import re
from typing import Any

from sharpi.constraints.schema.references import Schema
from sharpi.errors import GrammarError

_LITERAL = re.compile(r"\^([\w-]+)\$")
_UNIVERSAL = frozenset(["", ".*", "^"])


def list_literal_patterns(schema: dict[str, Any]) -> None:
    """Makes each pattern of exactly one name a listed property, where there are other patterns."""
    patterns = schema["patternProperties"]
    literal = {found[1]: each for each in patterns if (found := _LITERAL.fullmatch(each))}
    if not literal or len(patterns) < 2:
        return
    known = dict(schema.get("properties", {}))
    for name, pattern in literal.items():
        known[name] = {"allOf": [patterns[pattern], known.get(name, True)]}
    rest = {each: patterns[each] for each in patterns if each not in literal.values()}
    schema |= {"properties": known, "patternProperties": rest}


def replace_universal_patterns(schema: dict[str, Any]) -> None:
    """Replaces patterns that every name matches, if there are no others, by what is equal."""
    patterns = schema.get("patternProperties")
    if patterns is None or not set(patterns) <= _UNIVERSAL:
        return
    every, known = list(patterns.values()), schema.get("properties", {})
    schema["properties"] = {name: {"allOf": [each, *every]} for name, each in known.items()}
    schema["additionalProperties"] = {"allOf": every} if len(every) > 1 else every[0]
    del schema["patternProperties"]


def pattern_of_names(names: Schema) -> str | None:
    """Returns the pattern of allowed names; None if all are allowed."""
    if not isinstance(names, dict):
        return None if names else r"^[^\s\S]$"
    if "enum" in names or "const" in names:
        values = names.get("enum", [names.get("const")])
        texts = [re.escape(value) for value in values if isinstance(value, str)]
        return f"^({'|'.join(texts)})$"
    if "pattern" in names and not {"minLength", "maxLength"} & set(names):
        return str(names["pattern"])
    if {"minLength", "maxLength"} & set(names) and "pattern" not in names:
        return rf"^[\s\S]{{{names.get('minLength', 0)},{names.get('maxLength', '')}}}$"
    if set(names) <= {"type", "format", "title", "description", "$comment"}:
        return None
    raise GrammarError("not supported in a JSON schema: propertyNames of this kind")
