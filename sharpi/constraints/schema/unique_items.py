"""Arrays of different items, as a plan by which these are told apart while they are written."""

import json
from collections.abc import Iterable, Iterator
from math import perm
from typing import Any, NamedTuple

from sharpi.constraints.different.leaf import Place, Plan, Rule
from sharpi.constraints.different.spelling import spelling_of
from sharpi.constraints.schema.arrays import values_of
from sharpi.constraints.schema.item_ways import refusal
from sharpi.constraints.schema.references import References, Schema, objects_in, types_of
from sharpi.constraints.schema.unique_leaves import Patches
from sharpi.constraints.schema.unique_rules import Rules

_SAME_VALUE = ("allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "dependencies")
_MAPS = frozenset(["properties", "patternProperties", "dependentSchemas", "dependencies"])
_OTHERS = ("patternProperties", "additionalProperties", "unevaluatedProperties")
_DATA = ("enum", "const", "default", "examples")
_MAX_PLACES = 4000
_MAX_STEPS = 500_000  # schemas looked at for all places; about 0.1 s
_MAX_LISTS = 1000  # of few values, which are better listed
_BESIDE = ("prefixItems", "contains", "additionalItems", "unevaluatedItems")
_Schemas = tuple[dict[str, Any], ...]


class UniqueItems(NamedTuple):
    """A schema without the `uniqueItems` that a plan enforces; empty if there are none."""

    schema: Schema
    plan: Plan


def unique_items(root: Schema) -> UniqueItems:
    """Takes `uniqueItems` from a schema; those of few values stay.

    Raises GrammarError where it cannot be decided token by token whether items differ.
    """
    if not isinstance(root, dict) or not _has_unique(root):
        return UniqueItems(root, [])
    found = _Places(root)
    plan = found.plan if any(place.rule for place in found.plan) else []
    return UniqueItems(_patched(root, found.patches), plan)


class _Places:
    """The places of one document."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._references = References(root)
        self._rules = Rules(self._references)
        self._dropped: Patches = {}
        self._numbers: dict[tuple[int, ...], int] = {}
        self._left: list[_Schemas] = []
        self._num_steps = 0
        self.plan: Plan = []
        self._number([root])
        for schemas in self._left:
            self._fill(self.plan[self._numbers[_ids(schemas)]], schemas)
        for key in ("$defs", "definitions"):
            self._drop_unused(root.get(key))

    @property
    def patches(self) -> Patches:
        """The changes that the document needs."""
        found = {key: dict(value) for key, value in self._rules.patches.items()}
        for key, value in self._dropped.items():
            found.setdefault(key, {}).update(value)
        return found

    def _spend(self, num: int) -> None:
        """Counts schemas that are looked at; raises GrammarError if they are too many."""
        self._num_steps += num
        if self._num_steps > _MAX_STEPS:
            raise refusal("in so large a schema")

    def _drop_unused(self, root: Any) -> None:
        """Drops `uniqueItems` in definitions of which no value of the answer has to be one."""
        used = {number for each in self._numbers for number in each}
        for each in objects_in(root, but=_DATA):
            if id(each) not in used and each.get("uniqueItems") is True:
                self._dropped[id(each)] = {"uniqueItems": None}

    def _number(self, schemas: Iterable[Any]) -> int:
        """Returns the number of the place where any of these schemas may hold."""
        every = self._holding(schemas)
        if not every:
            return -1
        key = _ids(every)
        if key not in self._numbers:
            if len(self.plan) >= _MAX_PLACES:
                raise refusal("in so large a schema")
            self._numbers[key] = len(self.plan)
            self.plan.append(Place({}))
            self._left.append(every)
        return self._numbers[key]

    def _holding(self, schemas: Iterable[Any]) -> _Schemas:
        """Returns the schemas, and those that may hold for the same value."""
        found: dict[int, dict[str, Any]] = {}
        left = list(schemas)
        self._spend(len(left))
        while left:
            each = left.pop()
            if not isinstance(each, dict) or id(each) in found:
                continue
            found[id(each)] = each
            self._spend(1 + len(each) // 8)
            left += _parts(each, _SAME_VALUE)
            if "$ref" in each:
                left.append(self._references.target(each["$ref"]))
        return tuple(found[key] for key in sorted(found))

    def _fill(self, place: Place, schemas: _Schemas) -> None:
        others = [each for schema in schemas for each in _parts(schema, _OTHERS)]
        place.other = self._number(others)
        names = {name for schema in schemas for name in schema.get("properties", {})}
        self._spend(len(names) * len(schemas))
        for name in sorted(names):
            own = [
                schema["properties"].get(name, True) for schema in schemas if "properties" in schema
            ]
            place.names[spelling_of(name)] = self._number([*own, *others])
        self._fill_items(place, schemas)
        place.rule = self._rule(schemas)

    def _fill_items(self, place: Place, schemas: _Schemas) -> None:
        first: list[list[Any]] = []
        rest = [e for s in schemas for e in _parts(s, ("contains", "unevaluatedItems"))]
        for schema in schemas:
            listed, items = schema.get("prefixItems"), schema.get("items")
            if isinstance(items, list):
                listed, items = items, schema.get("additionalItems")
            if isinstance(listed, list):
                first.append(listed)
            rest.append(items)
        place.rest = self._number(rest)
        place.items = tuple(
            self._number([*rest, *(each[index] for each in first if index < len(each))])
            for index in range(max(map(len, first), default=0))
        )

    def _rule(self, schemas: _Schemas) -> Rule | None:
        arrays = [each for each in schemas if "array" in types_of(each)]
        unique = [each for each in arrays if self._is_different(each)]
        if not unique:
            return None
        _require_plain(arrays)
        kinds = {json.dumps(each["items"]): each["items"] for each in arrays if _has_items(each)}
        if len(kinds) > 1:
            raise refusal("beside arrays of other items in the same place")
        items: Schema = next(iter(kinds.values()), True)
        for each in unique:
            self._dropped.setdefault(id(each), {})["uniqueItems"] = None
        rules = [
            self._rules.of_array(each, each["items"] if _has_items(each) else items)
            for each in arrays
            if _has_items(each) or any(each is other for other in unique)
        ]
        return rules[0]

    def _is_different(self, schema: dict[str, Any]) -> bool:
        """Returns whether items have to differ, and are not few values that are listed."""
        if schema.get("uniqueItems") is not True or schema.get("maxItems") in (0, 1):
            return False
        values = values_of(schema.get("items", True), self._references)
        if values is None:
            return True
        if any(isinstance(value, dict | list | float) for value in values):
            return False
        items = self._references.resolved(schema["items"])
        if isinstance(items, dict) and ("anyOf" in items or "oneOf" in items):
            return True
        low, high = schema.get("minItems", 0), schema.get("maxItems", len(values))
        num = 0
        for size in range(low, min(high, len(values)) + 1):
            num += perm(len(values), size)
            if num > _MAX_LISTS:
                return True
        return False


def _require_plain(arrays: list[dict[str, Any]]) -> None:
    for each in arrays:
        if any(key in each for key in _BESIDE) or isinstance(each.get("items"), list):
            raise refusal("beside contains or a list of items")
        values = each.get("enum", [each["const"]] if "const" in each else [])
        if any(isinstance(value, list) for value in values):
            raise refusal("beside arrays that are listed")


def _has_items(schema: dict[str, Any]) -> bool:
    return schema.get("items") not in (None, True, {})


def _ids(schemas: _Schemas) -> tuple[int, ...]:
    return tuple(id(each) for each in schemas)


def _has_unique(root: dict[str, Any]) -> bool:
    return any(each.get("uniqueItems") is True for each in objects_in(root))


def _parts(schema: dict[str, Any], keywords: tuple[str, ...]) -> Iterator[Any]:
    """Yields the schemas in keywords, which have one, a list of them, or a map."""
    for keyword in keywords:
        value = schema.get(keyword)
        if isinstance(value, list):
            yield from value
        elif isinstance(value, dict) and keyword in _MAPS:
            yield from value.values()
        elif isinstance(value, dict):
            yield value


def _patched(schema: Any, patches: Patches) -> Any:
    """Returns a copy with the keywords of these schemas changed."""
    if isinstance(schema, list):
        return [_patched(each, patches) for each in schema]
    if not isinstance(schema, dict):
        return schema
    new = patches.get(id(schema), {})
    kept = {**schema, **new} if new else schema
    return {
        key: _patched(each, patches) for key, each in kept.items() if new.get(key, key) is not None
    }
