"""Negates JSON schemas, as far as schemas can describe the values that do not match.

A negation may leave out some of these values. So every answer that it allows is valid, but it does
not allow every valid answer.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from sharpi.constraints.patterns.automaton import automaton_of
from sharpi.constraints.schema.budget import Budget
from sharpi.constraints.schema.complement_pattern import complement_pattern
from sharpi.constraints.schema.names import pattern_of_names
from sharpi.constraints.schema.other_numbers import other_multiples
from sharpi.constraints.schema.other_strings import other_strings
from sharpi.constraints.schema.references import TYPES, References, Schema
from sharpi.errors import GrammarError

_MAX_DEPTH = 24
# Keywords whose violations are not described; unknown ones say nothing about an answer.
_UNDESCRIBED = frozenset([
    "additionalProperties", "additionalItems", "prefixItems", "contains", "minContains",
    "maxContains", "uniqueItems", "unevaluatedItems", "unevaluatedProperties", "if", "then", "else",
    "dependencies", "dependentRequired", "dependentSchemas", "$dynamicRef", "$recursiveRef",
])  # fmt: skip
PATTERN_COST = 2500  # schemas that take as long to rewrite as the largest pattern
# By keyword of a limit: the type, the keyword that describes the values beyond the limit, and the
# difference between the two keywords' numbers.
_LIMITS: dict[str, tuple[str, str, int]] = {
    "minimum": ("number", "exclusiveMaximum", 0),
    "maximum": ("number", "exclusiveMinimum", 0),
    "exclusiveMinimum": ("number", "maximum", 0),
    "exclusiveMaximum": ("number", "minimum", 0),
    "minLength": ("string", "maxLength", -1),
    "maxLength": ("string", "minLength", 1),
    "minItems": ("array", "maxItems", -1),
    "maxItems": ("array", "minItems", 1),
    "minProperties": ("object", "maxProperties", -1),
    "maxProperties": ("object", "minProperties", 1),
}


class Negation:
    """Negates schemas of one document, within a budget of schemas."""

    def __init__(self, references: References, budget: Budget) -> None:
        self._references, self._budget = references, budget

    def of(self, schema: Schema, depth: int = 0) -> list[Schema]:
        """Returns alternative schemas of the values that `schema` does not match.

        The list is empty if `schema` matches all values. Raises GrammarError if no schema can
        describe the values.
        """
        schema = self._references.resolved(schema)
        if isinstance(schema, bool):
            self._budget.spend()
            return [] if schema else [True]
        self._budget.spend(1 + len(schema) // 8)
        if depth > _MAX_DEPTH:
            raise GrammarError("the JSON schema nests a negation too deeply")
        found, is_partial = [], False
        for keyword, value in schema.items():
            alternatives = self._negated(keyword, value, depth)
            if alternatives is None:
                is_partial = True
            else:
                found += alternatives
        if is_partial and not found:
            names = ", ".join(sorted(set(schema) & {*_UNDESCRIBED, *_LIMITS, *_NEGATIONS}))
            raise GrammarError(f"not supported in a JSON schema: the negation of {names}")
        return found

    def _negated(self, keyword: str, value: Any, depth: int) -> list[Schema] | None:
        """Returns alternative schemas of the values that violate one keyword.

        Returns None if no schema can describe them.
        """
        if keyword in _LIMITS:
            return _beyond(keyword, value)
        if keyword in _NEGATIONS:
            return _NEGATIONS[keyword](self, value, depth + 1)
        return None if keyword in _UNDESCRIBED else []

    def _not(self, value: Schema, depth: int) -> list[Schema]:
        return [value]

    def _all_of(self, value: Sequence[Schema], depth: int) -> list[Schema]:
        return [alternative for each in value for alternative in self._of_part(each, depth)]

    def _of_part(self, schema: Schema, depth: int) -> list[Schema]:
        """Returns the alternatives of a subschema's negation; empty if no schema describes it."""
        try:
            return self.of(schema, depth)
        except GrammarError:
            self._budget.spend(0)  # raises again if the budget is exceeded
            return []

    def _any_of(self, value: Sequence[Schema], depth: int) -> list[Schema]:
        each_fails = [self.of(each, depth) for each in value]
        if not all(each_fails):
            return []
        return [{"allOf": [{"anyOf": alternatives} for alternatives in each_fails]}]

    def _type(self, value: Any, depth: int) -> list[Schema]:
        types = [value] if isinstance(value, str) else value
        has_numbers = "number" in types or "integer" in types
        others = [
            each for each in TYPES if each not in types and (each != "number" or not has_numbers)
        ]
        return [{"type": others}] if others else []

    def _const(self, value: Any, depth: int) -> list[Schema]:
        return self._enum([value], depth)

    def _enum(self, value: Any, depth: int) -> list[Schema]:
        chars = sum(len(each) for each in value if isinstance(each, str))
        self._budget.spend(len(value) + chars // 8)
        return list(_other_values(value))

    def _required(self, value: Any, depth: int) -> list[Schema]:
        if not isinstance(value, list):  # an older draft's boolean, which llguidance ignores
            return []
        self._budget.spend(len(value))
        return [{"type": "object", "properties": {name: False}} for name in value]

    def _properties(self, value: Any, depth: int) -> list[Schema]:
        return [
            {"type": "object", "properties": {name: alternative}, "required": [name]}
            for name, each in value.items()
            for alternative in self._of_part(each, depth)
        ]

    def _items(self, value: Any, depth: int) -> list[Schema] | None:
        if not isinstance(value, dict | bool):
            return None
        alternatives = self._of_part(value, depth)
        return [
            {"type": "array", "prefixItems": [alternative], "minItems": 1}
            for alternative in alternatives
        ]

    def _pattern(self, value: Any, depth: int) -> list[Schema]:
        self._budget.spend(PATTERN_COST)
        others = complement_pattern(value)
        return [] if others is None else [{"type": "string", "pattern": others}]

    def _multiple_of(self, value: Any, depth: int) -> list[Schema]:
        found = list(other_multiples(value))
        self._budget.spend(len(found))
        return found

    def _pattern_properties(self, value: Any, depth: int) -> list[Schema]:
        """Negates `patternProperties`; violations use a shortest matching name of each pattern."""
        self._budget.spend(PATTERN_COST * len(value))
        alternatives = {pattern: self._of_part(each, depth) for pattern, each in value.items()}
        names = {
            pattern: automaton_of(pattern).shortest()
            for pattern in alternatives
            if alternatives[pattern]
        }
        return [
            {"type": "object", "properties": {name: alternative}, "required": [name]}
            for pattern, name in names.items()
            for alternative in alternatives[pattern]
            if name is not None
        ]

    def _property_names(self, value: Any, depth: int) -> list[Schema]:
        """Negates `propertyNames` by requiring a property with one shortest forbidden name."""
        self._budget.spend(PATTERN_COST)
        pattern = pattern_of_names(self._references.resolved(value))
        name = None if pattern is None else automaton_of(pattern).shortest(accepted=False)
        return [] if name is None else [{"type": "object", "required": [name]}]


_NEGATIONS: dict[str, Callable[[Negation, Any, int], list[Schema] | None]] = {
    "not": Negation._not,
    "allOf": Negation._all_of,
    "anyOf": Negation._any_of,
    "oneOf": Negation._any_of,
    "type": Negation._type,
    "const": Negation._const,
    "enum": Negation._enum,
    "required": Negation._required,
    "properties": Negation._properties,
    "items": Negation._items,
    "pattern": Negation._pattern,
    "multipleOf": Negation._multiple_of,
    "patternProperties": Negation._pattern_properties,
    "propertyNames": Negation._property_names,
}


def _beyond(keyword: str, value: Any) -> list[Schema] | None:
    """Returns schemas of the values that violate the limit `keyword`.

    Returns None for a boolean limit, as in older drafts.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    kind, limit, step = _LIMITS[keyword]
    beyond = value + step
    return [] if kind != "number" and beyond < 0 else [{"type": kind, limit: beyond}]


def _other_values(values: Sequence[Any]) -> Iterator[Schema]:
    """Yields schemas of values other than `values`.

    Objects are left out if `values` holds an object, and arrays if it holds an array.
    """
    texts = [value for value in values if isinstance(value, str)]
    yield {"type": "string", "pattern": other_strings(texts)} if texts else {"type": "string"}
    yield from _other_numbers(values)
    bools = [each for each in (True, False) if not any(value is each for value in values)]
    if bools:
        yield {"enum": bools}
    if None not in values:
        yield {"type": "null"}
    for kind, name in ((dict, "object"), (list, "array")):
        if not any(isinstance(value, kind) for value in values):
            yield {"type": name}


def _other_numbers(values: Sequence[Any]) -> Iterator[Schema]:
    numbers = sorted(
        {
            value
            for value in values
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
    )
    if not numbers:
        yield {"type": "number"}
        return
    yield {"type": "number", "exclusiveMaximum": numbers[0]}
    for low, high in pairwise(numbers):
        yield {"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": high}
    yield {"type": "number", "exclusiveMinimum": numbers[-1]}
