"""Expands a JSON schema to a list of alternatives without `$ref`, `allOf`, `anyOf` and `oneOf`.

The list is the schema's disjunctive normal form: a value matches if it matches one alternative.
"""

import json
from typing import Any

from msgspec import Struct

from sharpi.constraints.schema.references import References, Schema, types_of
from sharpi.errors import GrammarError

_CHOICES = ("$ref", "allOf", "anyOf", "oneOf")
_REFUSED = frozenset([
    "not", "if", "dependentRequired", "dependentSchemas", "dependencies", "contains",
    "unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef", "extends",
])  # fmt: skip
_KNOWN = frozenset([
    "type", "enum", "const", "minLength", "maxLength", "pattern", "format", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "properties", "required",
    "additionalProperties", "patternProperties", "minProperties", "maxProperties", "propertyNames",
    "items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems",
])  # fmt: skip
_OBJECT = ("properties", "additionalProperties", "patternProperties")
_MAX_ALTERNATIVES, _MAX_DEPTH = 64, 12
_MAX_PARTS = 20_000  # visited in one document; about 50 ms


class Alternative(Struct):
    """The merged keywords of one alternative, and the schema that each keyword comes from."""

    keywords: dict[str, Any]
    sources: dict[str, dict[str, Any]]

    @property
    def types(self) -> list[str]:
        """The JSON types that the alternative allows; \"number\" includes integers."""
        return types_of(self.keywords)


def unsupported(reason: str) -> GrammarError:
    """Returns the error for arrays whose items cannot be kept unique token by token."""
    return GrammarError(f"not supported in a JSON schema: uniqueItems {reason}")


class Alternatives:
    """Expands the schemas of one document, up to a limited number of subschemas."""

    def __init__(self, references: References) -> None:
        self._references, self._left = references, _MAX_PARTS

    def of(self, schema: Schema) -> list[Alternative]:
        """Returns the alternatives of a schema; raises GrammarError for unsupported keywords."""
        return [_merged(parts) for parts in self._parts(schema, 0)]

    def _parts(self, schema: Schema, depth: int) -> list[list[dict[str, Any]]]:
        self._left -= 1
        if self._left < 0:
            raise unsupported("in so complex a schema")
        if schema is False:
            return []
        if not isinstance(schema, dict):
            return [[]]
        if depth > _MAX_DEPTH:
            raise unsupported("of items that nest too deeply")
        found = [[schema]]
        if "$ref" in schema:
            found = _both(found, self._parts(self._references.target(schema["$ref"]), depth + 1))
        for each in schema.get("allOf", ()):
            found = _both(found, self._parts(each, depth + 1))
        for key in ("anyOf", "oneOf"):
            if key in schema:
                choices = [
                    alternative
                    for each in schema[key]
                    for alternative in self._parts(each, depth + 1)
                ]
                found = _both(found, choices)
        return found


def _both(
    one: list[list[dict[str, Any]]], other: list[list[dict[str, Any]]]
) -> list[list[dict[str, Any]]]:
    if len(one) * len(other) > _MAX_ALTERNATIVES:
        raise unsupported("of items of very many kinds")
    return [[*a, *b] for a in one for b in other]


def _merged(parts: list[dict[str, Any]]) -> Alternative:
    found = Alternative({}, {})
    for part in parts:
        for key, value in part.items():
            if key in _REFUSED:
                raise unsupported(f"of items with {key}")
            if key in _KNOWN:
                _add(found, part, key, value)
    return found


def _add(found: Alternative, part: dict[str, Any], key: str, value: Any) -> None:
    known = found.keywords.get(key)
    if known is None:
        others = [found.sources[each] for each in _OBJECT if each in found.sources]
        if key in _OBJECT and any(each is not part for each in others):
            raise unsupported("of objects whose properties are in several schemas")
        found.keywords[key], found.sources[key] = value, part
    elif key == "type":
        types = types_of(part)
        found.keywords[key] = [each for each in found.types if each in types]
    elif key == "required":
        found.keywords[key] = [*known, *value]
    elif json.dumps(known) != json.dumps(value):
        raise unsupported(f"of items with {key} in several schemas")
