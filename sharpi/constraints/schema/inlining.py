"""Inlines each `$ref` that has other keywords beside it.

llguidance cannot merge a recursive reference with other keywords, and rejects the schema. So the
reference is replaced by a copy of its target under a new name. Within the copy, no `$ref` has
keywords beside it.
"""

import json
from collections.abc import Iterator
from typing import Any

from sharpi.constraints.schema.budget import Budget
from sharpi.constraints.schema.references import References, Schema

_NOTES = frozenset(["title", "description", "default", "examples", "$comment", "$id", "$schema"])
_DEFINITIONS = ("$defs", "definitions")
_MAPS = ("properties", "patternProperties", *_DEFINITIONS)
_ALONE = ("additionalProperties", "items", "additionalItems", "prefixItems")
_TOGETHER = ("allOf", "anyOf", "oneOf")
_NAME = "inlined-"


class Inlining:
    """Inlines references within one schema document."""

    def __init__(self, root: dict[str, Any], budget: Budget) -> None:
        self._root, self._budget = root, budget
        self._references = References(root)
        self._names: dict[str, str] = {}  # of schemas, by their text
        self._named: dict[str, Schema] = {}

    def inlined(self) -> dict[str, Any]:
        """Returns the document with inlined references; raises TooManySchemas beyond the budget."""
        found = self._inner(self._root, within=(), is_alone=True)
        found["$defs"] = found.get("$defs", {}) | self._named
        return found

    def _value(self, schema: Schema) -> Schema:
        """Returns the schema of a property or item, or a `$ref` to its inlined copy."""
        if not isinstance(schema, dict):
            return schema
        if not _combines(schema, is_alone=True):
            return self._part(schema, within=(), is_alone=True)
        text = json.dumps(schema)
        if text not in self._names:
            name = self._names[text] = f"{_NAME}{len(self._names)}"
            self._named[name] = self._part(schema, within=(), is_alone=True)
        return {"$ref": f"#/$defs/{self._names[text]}"}

    def _part(self, schema: Schema, within: tuple[str, ...], *, is_alone: bool) -> Schema:
        """Returns a schema in which references beside other keywords are inlined.

        `within`: the references whose targets are being inlined, to stop at recursion. `is_alone`:
        no other schema applies to the same value.
        """
        if not isinstance(schema, dict):
            return schema
        is_alone = is_alone and _is_single(schema)
        reference = schema.get("$ref")
        if reference is None or is_alone or reference in within:
            return self._inner(schema, within, is_alone=is_alone)
        target = self._references.target(reference)
        copy = self._part(target, (*within, reference), is_alone=False)
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        if not set(beside) - _NOTES:
            return copy
        return {"allOf": [copy, self._inner(beside, within, is_alone=False)]}

    def _inner(
        self, schema: dict[str, Any], within: tuple[str, ...], *, is_alone: bool
    ) -> dict[str, Any]:
        self._budget.spend(1 + len(schema) // 8)
        found = dict(schema)
        for key, value in schema.items():
            if key in _MAPS and isinstance(value, dict):
                found[key] = {name: self._value(each) for name, each in value.items()}
            elif key in _ALONE:
                is_list = isinstance(value, list)
                found[key] = [*map(self._value, value)] if is_list else self._value(value)
        for part, alone in _parts(schema, is_alone=is_alone):
            found[part] = [self._part(each, within, is_alone=alone) for each in schema[part]]
        return found


def _is_single(schema: dict[str, Any]) -> bool:
    return len(set(schema) - _NOTES - set(_DEFINITIONS)) < 2


def _parts(schema: dict[str, Any], *, is_alone: bool) -> Iterator[tuple[str, bool]]:
    """Yields each of `allOf`, `anyOf` and `oneOf` in a schema, with a flag.

    The flag is True if each of the keyword's subschemas applies to a value alone.
    """
    for key in _TOGETHER:
        if isinstance(schema.get(key), list):
            alone = is_alone and _is_single(schema)
            yield key, alone and (key != "allOf" or len(schema[key]) < 2)


def _combines(schema: Schema, *, is_alone: bool) -> bool:
    """Returns whether a `$ref` in the schema applies to the same value as another schema."""
    if not isinstance(schema, dict):
        return False
    if "$ref" in schema and not (is_alone and _is_single(schema)):
        return True
    return any(
        _combines(each, is_alone=alone)
        for key, alone in _parts(schema, is_alone=is_alone)
        for each in schema[key]
    )
