"""Rewrites JSON schemas into keywords that llguidance enforces.

`not`, `if`, `dependentRequired` and the like become `anyOf` of schemas without them. Every value
that a rewritten schema allows is allowed by the original schema.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sharpi.constraints.schema.arrays import containing, unique_arrays
from sharpi.constraints.schema.budget import Budget
from sharpi.constraints.schema.facts import exclude_each_other, facts_of
from sharpi.constraints.schema.formats import FORMATS
from sharpi.constraints.schema.name_patterns import make_disjoint, overlap
from sharpi.constraints.schema.names import (
    list_few_names,
    pattern_of_names,
    replace_universal_patterns,
)
from sharpi.constraints.schema.negation import PATTERN_COST, Negation
from sharpi.constraints.schema.pattern import Pattern
from sharpi.constraints.schema.property_counts import counted_properties
from sharpi.constraints.schema.references import References, Schema, named_in_references
from sharpi.errors import GrammarError

_SCHEMAS = ("additionalProperties", "items", "additionalItems")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_KEYS = frozenset([
    *_SCHEMAS, *_LISTS, *_MAPS, "not", "if", "then", "else", "contains", "propertyNames", "const",
    "enum", "default", "examples", "dependencies", "dependentSchemas", "dependentRequired",
])  # fmt: skip
_MAX_DEPTH = 100


class Rewriting:
    """Rewrites one document, within a budget of schemas.

    With `splits_one_of`, the branches of `oneOf` are made to exclude each other.
    """

    def __init__(self, root: Schema, budget: Budget, *, splits_one_of: bool = False) -> None:
        self._root, self._splits_one_of = root, splits_one_of
        self._references = References(root)
        self._budget = budget
        self._negation = Negation(self._references, self._budget)
        # Keys, other than the known keywords, whose values hold schemas that references name.
        self._referred = named_in_references(root) - _KEYS

    def rewritten(self) -> Schema:
        """Returns the rewritten document; raises GrammarError for unsupported keywords."""
        return self._schema(self._root, 0)

    def _schema(self, schema: Schema, depth: int) -> Schema:
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return schema
        self._budget.spend(1 + len(schema) // 8)
        found = self._inner(schema, depth + 1)
        more: list[Schema] = []
        for keyword, rewrite in _KEYWORDS.items():
            if keyword in schema:
                more += rewrite(self, found, depth + 1)
        if more:
            found["allOf"] = [*found.get("allOf", ()), *more]
        return found

    def _inner(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        """Returns a copy of a schema with all subschemas rewritten."""
        found = dict(schema)
        for key in found:
            value = found[key]
            if key in _SCHEMAS and isinstance(value, dict):
                found[key] = self._schema(value, depth)
            elif key in _LISTS and isinstance(value, list):
                found[key] = [self._schema(each, depth) for each in value]
            elif key in _MAPS and isinstance(value, dict):
                found[key] = {name: self._schema(each, depth) for name, each in value.items()}
            elif key in self._referred and isinstance(value, dict):
                found[key] = self._schema(value, depth)
        return found

    def _format(self, schema: dict[str, Any], depth: int) -> list[Schema]:
        if schema["format"] not in FORMATS:
            del schema["format"]
        return []

    def _not(self, schema: dict[str, Any], depth: int) -> list[Schema]:
        return [self._none_of(schema.pop("not"), depth)]

    def _none_of(self, schema: Schema, depth: int) -> Schema:
        """Returns a schema of the values that `schema` does not match; False if it matches all."""
        alternatives = [
            self._schema(alternative, depth) for alternative in self._negation.of(schema)
        ]
        return {"anyOf": alternatives} if alternatives else False

    def _if(self, schema: dict[str, Any], depth: int) -> list[Schema]:
        condition = schema.pop("if")
        then, otherwise = schema.pop("then", True), schema.pop("else", True)
        if then is True and otherwise is True:
            return []
        holds = {"allOf": [self._schema(condition, depth), self._schema(then, depth)]}
        fails = self._none_of(condition, depth)
        if fails is False:
            return [holds]
        return [{"anyOf": [holds, {"allOf": [fails, self._schema(otherwise, depth)]}]}]

    def _drop(self, schema: dict[str, Any], depth: int) -> list[Schema]:
        """Drops keywords without effect of their own: `then`, `else`, `minContains`, `maxContains`.

        The keywords `if` and `contains`, which use them, have been rewritten before.
        """
        for name in ("then", "else", "minContains", "maxContains"):
            schema.pop(name, None)
        return []

    def _dependent(self, schema: dict[str, Any], depth: int) -> list[Schema]:
        more: list[Schema] = []
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            for name, needed in schema.pop(keyword, {}).items():
                if isinstance(needed, list):
                    present: Schema = {"type": "object", "required": [name, *needed]}
                else:
                    has_name = {"type": "object", "required": [name]}
                    present = {"allOf": [has_name, self._schema(needed, depth)]}
                absent = {"type": "object", "properties": {name: False}}
                more.append({"anyOf": [absent, present, *_no_object(schema)]})
        return more

    def _unique(self, schema: dict[str, Any], depth: int) -> list[Schema]:
        if schema.pop("uniqueItems") is not True or not _may_be(schema, "array"):
            return []
        found = unique_arrays(schema, self._references, self._budget)
        if found is None:
            return []
        for name in ("items", "minItems", "maxItems"):
            schema.pop(name, None)
        return [_or_other_types(schema, found, "array")]

    def _contains(self, schema: dict[str, Any], depth: int) -> list[Schema]:
        if not _may_be(schema, "array"):
            del schema["contains"]
            return []
        schema["contains"] = self._schema(schema["contains"], depth)
        alternatives = list(containing(schema))
        del schema["contains"]
        if not alternatives:
            raise GrammarError("the JSON schema's contains needs an item, and maxItems is 0")
        return [_or_other_types(schema, {"anyOf": alternatives}, "array")]

    def _names(self, schema: dict[str, Any], depth: int) -> list[Schema]:
        """Replaces `propertyNames` by `patternProperties`.

        The schemas of listed properties with forbidden names become False.
        """
        names = self._references.resolved(schema.pop("propertyNames"))
        pattern = pattern_of_names(names)
        if pattern is None:
            return []
        replace_universal_patterns(schema)
        self._budget.spend(10 * len(schema.get("properties", ())))
        known, named = schema.get("properties", {}), Pattern(pattern)
        schema["properties"] = {
            name: each if named.matches(name) else False for name, each in known.items()
        }
        others = schema.get("additionalProperties", True)
        if "patternProperties" in schema:
            self._spend_on(schema["patternProperties"])
            make_disjoint(schema, pattern)
        else:
            schema["patternProperties"] = {pattern: others}
            schema["additionalProperties"] = False
        return []

    def _patterns(self, schema: dict[str, Any], depth: int) -> list[Schema]:
        if "patternProperties" in schema:
            list_few_names(schema)
        patterns = schema.get("patternProperties", {})
        if len(patterns) > 1:
            self._spend_on(patterns)
            if overlap(list(patterns)):
                make_disjoint(schema)
        return []

    def _spend_on(self, patterns: Mapping[str, Schema]) -> None:
        self._budget.spend(PATTERN_COST * len(patterns))

    def _unevaluated(self, schema: dict[str, Any], depth: int) -> list[Schema]:
        """Replaces the keywords `unevaluated...` by `additionalProperties` and `items`.

        Raises GrammarError beside `anyOf`, `$ref` and the like, where the meanings differ.
        """
        others = {"allOf", "anyOf", "oneOf", "$ref", "if", "dependentSchemas"} & set(schema)
        for old, new in (
            ("unevaluatedProperties", "additionalProperties"),
            ("unevaluatedItems", "items"),
        ):
            if old not in schema:
                continue
            if schema[old] is not True and others:
                raise GrammarError(f"not supported in a JSON schema: {old} beside {min(others)}")
            value = schema.pop(old)
            schema.setdefault(new, value)
        return []

    def _one_of(self, schema: dict[str, Any], depth: int) -> list[Schema]:
        branches: Sequence[Schema] = schema["oneOf"]
        overlaps = self._overlaps(schema, branches)
        if any(overlaps) and not self._splits_one_of:
            return []
        del schema["oneOf"]
        alternatives: list[Schema] = []
        for branch, others in zip(branches, overlaps, strict=True):
            without = [self._none_of(other, depth) for other in others]
            if False not in without:
                alternatives.append({"allOf": [branch, *without]} if without else branch)
        if not alternatives:
            raise GrammarError("no answer fits exactly one branch of the JSON schema's oneOf")
        return [{"anyOf": alternatives}]

    def _overlaps(self, schema: dict[str, Any], branches: Sequence[Schema]) -> list[list[Schema]]:
        """Returns, for each branch, the other branches that may match the same value."""
        self._budget.spend(len(branches) ** 2 // 8)
        around = {key: value for key, value in schema.items() if key not in ("oneOf", "anyOf")}
        facts = facts_of(around, self._references)
        return [
            [
                other
                for j, other in enumerate(branches)
                if i != j and not exclude_each_other(branch, other, self._references, facts)
            ]
            for i, branch in enumerate(branches)
        ]

    def _counts(self, schema: dict[str, Any], depth: int) -> list[Schema]:
        more = counted_properties(schema, facts_of(schema, self._references))
        self._budget.spend(sum(len(str(each)) // 64 for each in more))
        return more


_Rewrite = Callable[[Rewriting, dict[str, Any], int], list[Schema]]
# In order: rewrites that move keywords come before those that read them.
_KEYWORDS: dict[str, _Rewrite] = {
    "unevaluatedProperties": Rewriting._unevaluated,
    "unevaluatedItems": lambda self, schema, depth: (
        self._unevaluated(schema, depth) if "unevaluatedItems" in schema else []
    ),
    "propertyNames": Rewriting._names,
    "patternProperties": Rewriting._patterns,
    "format": Rewriting._format,
    "uniqueItems": Rewriting._unique,
    "contains": Rewriting._contains,
    "oneOf": Rewriting._one_of,
    "not": Rewriting._not,
    "if": Rewriting._if,
    "then": Rewriting._drop,
    "else": Rewriting._drop,
    "minContains": Rewriting._drop,
    "maxContains": Rewriting._drop,
    "dependentRequired": Rewriting._dependent,
    "dependentSchemas": Rewriting._dependent,
    "dependencies": Rewriting._dependent,
    "minProperties": Rewriting._counts,
    "maxProperties": Rewriting._counts,
}


def _may_be(schema: dict[str, Any], kind: str) -> bool:
    types = schema.get("type")
    return types is None or kind == types or (isinstance(types, list) and kind in types)


def _or_other_types(schema: dict[str, Any], found: Schema, kind: str) -> Schema:
    """Returns a schema that allows `found`, and values of the other types that `schema` allows.

    `kind`: the type of the values that `found` allows.
    """
    types = schema.get("type")
    if types == kind:
        return found
    every = ("null", "boolean", "object", "array", "number", "string")
    others = [each for each in (types or every) if each != kind]
    return {"anyOf": [found, {"type": others}]}


def _no_object(schema: dict[str, Any]) -> list[Schema]:
    """Returns a list of one schema that allows all values but objects.

    Keywords about properties do not apply to these values. Returns an empty list if `schema` allows
    only objects.
    """
    if schema.get("type") == "object":
        return []
    return [{"type": ["null", "boolean", "array", "number", "string"]}]
