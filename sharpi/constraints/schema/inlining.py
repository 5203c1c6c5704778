"""Copies schemas to the places where others hold beside their references.

llguidance keeps a reference in a circle as a name. Where it has to combine what the name stands for
with something else, the circle may not be closed yet, and it gives up.
"""

from typing import Any

from sharpi.constraints.schema.budget import Budget
from sharpi.constraints.schema.references import References, Schema

_NOTES = frozenset(["title", "description", "default", "examples", "$comment", "$id", "$schema"])
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_ALONE = ("additionalProperties", "items", "additionalItems", "prefixItems")
_TOGETHER = ("allOf", "anyOf", "oneOf")


class Inlining:
    """Copies within one document, whose references stand for what is in it now."""

    def __init__(self, root: Schema, budget: Budget) -> None:
        self._root, self._budget = root, budget
        self._references = References(root)

    def inlined(self) -> Schema:
        """Returns the document; raises TooManySchemas if it would become too large."""
        return self._schema(self._root, is_alone=True, within=())

    def _schema(self, schema: Schema, *, is_alone: bool, within: tuple[str, ...]) -> Schema:
        """Returns a copy; `within` are the references that lead to this place.

        `is_alone` is False if other schemas hold for the same value.
        """
        if not isinstance(schema, dict):
            return schema
        self._budget.spend(1 + len(schema) // 8)
        parts = set(schema) - _NOTES - set(_MAPS[2:])
        is_alone = is_alone and len(parts) < 2
        reference = schema.get("$ref")
        if reference is not None and not is_alone and reference not in within:
            return self._copied(schema, reference, within)
        found: dict[str, Any] = dict(schema)
        for key, value in schema.items():
            if key in _MAPS:
                found[key] = {name: self._apart(each) for name, each in value.items()}
            elif key in _ALONE:
                is_list = isinstance(value, list)
                found[key] = [*map(self._apart, value)] if is_list else self._apart(value)
            elif key in _TOGETHER:
                alone = is_alone and (key != "allOf" or len(value) < 2)
                found[key] = [self._schema(each, is_alone=alone, within=within) for each in value]
        return found

    def _apart(self, schema: Schema) -> Schema:
        """Returns a copy of a schema for another value than those around it."""
        return self._schema(schema, is_alone=True, within=())

    def _copied(self, schema: dict[str, Any], reference: str, within: tuple[str, ...]) -> Schema:
        """Returns what a reference stands for, together with the keywords beside it."""
        target = self._references.target(reference)
        copy = self._schema(target, is_alone=False, within=(*within, reference))
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        if not set(beside) - _NOTES:
            return copy
        return {"allOf": [copy, self._schema(beside, is_alone=False, within=within)]}
