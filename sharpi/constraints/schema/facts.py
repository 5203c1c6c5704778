"""Facts: the types, values and properties that hold for all values of a JSON schema.

Parts that hold only for some values, such as the branches of `anyOf`, are ignored.
"""

import json
from typing import Any, NamedTuple

from sharpi.constraints.schema.arrays import values_of
from sharpi.constraints.schema.references import TYPES, References, Schema, types_of

_TYPES = frozenset(TYPES)
_MAX_DEPTH = 8


class Facts(NamedTuple):
    """Facts that hold for every value that a schema allows."""

    types: frozenset[str]  # integers count as numbers
    required: frozenset[str]
    properties: dict[str, list[Schema]]  # by name: the schemas that all apply to the property
    only: frozenset[str] | None  # the names that an object may have; None for any
    parts: list[dict[str, Any]]  # the schemas that all apply to the value

    def allows(self, name: str) -> bool:
        """Returns whether an object may have a property of this name."""
        if self.only is not None and name not in self.only:
            return False
        return False not in self.properties.get(name, ())


def facts_of(schema: Schema, references: References, depth: int = 0) -> Facts:
    """Collects facts from a schema, its `$ref` and its `allOf`; raises GrammarError."""
    schema = references.resolved(schema)
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return Facts(_TYPES if schema else frozenset(), frozenset(), {}, None, [])
    found = _facts_without_all_of(schema)
    for each in schema.get("allOf", ()):
        found = _both(found, facts_of(each, references, depth + 1))
    return found


def _facts_without_all_of(schema: dict[str, Any]) -> Facts:
    properties, required = schema.get("properties", {}), schema.get("required", ())
    is_closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    return Facts(
        _types(schema),
        frozenset(required if isinstance(required, list) else ()),
        {name: [each] for name, each in properties.items()},
        frozenset(properties) if is_closed else None,
        [schema],
    )


def _types(schema: dict[str, Any]) -> frozenset[str]:
    return frozenset("number" if each == "integer" else each for each in types_of(schema))


def _both(a: Facts, b: Facts) -> Facts:
    names = [*a.properties, *(name for name in b.properties if name not in a.properties)]
    onlys = [each.only for each in (a, b) if each.only is not None]
    return Facts(
        a.types & b.types,
        a.required | b.required,
        {name: [*a.properties.get(name, ()), *b.properties.get(name, ())] for name in names},
        frozenset.intersection(*onlys) if onlys else None,
        [*a.parts, *b.parts],
    )


def exclude_each_other(
    a: Schema, b: Schema, references: References, around: Facts | None = None, depth: int = 0
) -> bool:
    """Returns True if provably no value matches both schemas; False if that is unknown.

    `around`: facts of the enclosing schema, which hold as well.
    """
    first, second = facts_of(a, references), facts_of(b, references)
    types = first.types & second.types & (around.types if around else _TYPES)
    if not types or _have_other_values(first, second, references):
        return True
    if types != {"object"} or depth > _MAX_DEPTH:
        return False
    required = first.required | second.required | (around.required if around else frozenset())
    return any(
        not (first.allows(name) and second.allows(name))
        or any(
            exclude_each_other(one, other, references, depth=depth + 1)
            for one in first.properties.get(name, ())
            for other in second.properties.get(name, ())
        )
        for name in required
    )


def _have_other_values(a: Facts, b: Facts, references: References) -> bool:
    return any(
        one.isdisjoint(other) for one in _values(a, references) for other in _values(b, references)
    )


def _values(facts: Facts, references: References) -> list[set[str]]:
    """Returns a set of JSON texts for each part of `facts` that allows only a few values."""
    found = [values_of(part, references) for part in facts.parts]
    return [{_text(value) for value in values} for values in found if values is not None]


def _text(value: Any) -> str:
    return json.dumps(_normalised(value), sort_keys=True)


def _normalised(value: Any) -> Any:
    """Returns a JSON value with 1.0 replaced by 1 at every depth; JSON does not tell them apart."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_normalised(each) for each in value]
    if isinstance(value, dict):
        return {name: _normalised(each) for name, each in value.items()}
    return value
