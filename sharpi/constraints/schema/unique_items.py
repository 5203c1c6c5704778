"""Plans how `uniqueItems` is enforced token by token."""

import json
from collections.abc import Iterable, Iterator
from math import perm
from typing import Any, NamedTuple

from sharpi.constraints.schema.alternatives import unsupported
from sharpi.constraints.schema.arrays import values_of
from sharpi.constraints.schema.references import References, Schema, objects_in, types_of
from sharpi.constraints.schema.scalar_collector import Patches
from sharpi.constraints.schema.uniqueness_rules import UniquenessRules
from sharpi.constraints.uniqueness.canonical_json import compact_json
from sharpi.constraints.uniqueness.uniqueness_plan import PlanNode, UniquenessPlan, UniquenessRule

_SAME_VALUE = ("allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "dependencies")
_MAPS = frozenset(["properties", "patternProperties", "dependentSchemas", "dependencies"])
_OTHERS = ("patternProperties", "additionalProperties", "unevaluatedProperties")
_DATA = ("enum", "const", "default", "examples")
_MAX_NODES = 4000
_MAX_STEPS = 500_000  # schemas visited for all nodes; about 0.1 s
_MAX_LISTS = 1000  # arrays of few values that are listed instead
_BESIDE = ("prefixItems", "contains", "additionalItems", "unevaluatedItems")
_Schemas = tuple[dict[str, Any], ...]


class PlannedSchema(NamedTuple):
    """A schema without the planned `uniqueItems`, and the plan that enforces them.

    The plan is empty if nothing was moved from the schema to it.
    """

    schema: Schema
    plan: UniquenessPlan


def unique_items(root: Schema) -> PlannedSchema:
    """Moves `uniqueItems` from a schema to a plan, except for items of few listed values.

    Raises GrammarError where it cannot be decided token by token whether items differ.
    """
    if not isinstance(root, dict) or not _has_unique(root):
        return PlannedSchema(root, [])
    found = _PlanBuilder(root)
    plan = found.plan if any(node.rule for node in found.plan) else []
    return PlannedSchema(_patched(root, found.patches), plan)


class _PlanBuilder:
    """Builds the uniqueness plan of one schema document."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._references = References(root)
        self._rules = UniquenessRules(self._references)
        self._dropped: Patches = {}
        self._numbers: dict[tuple[int, ...], int] = {}
        self._left: list[_Schemas] = []
        self._num_steps = 0
        self.plan: UniquenessPlan = []
        self._number([root])
        for schemas in self._left:
            self._fill(self.plan[self._numbers[_ids(schemas)]], schemas)
        for key in ("$defs", "definitions"):
            self._drop_unused(root.get(key))

    @property
    def patches(self) -> Patches:
        """The keywords to be changed in the document, by the `id()` of their schema."""
        found = {key: dict(value) for key, value in self._rules.patches.items()}
        for key, value in self._dropped.items():
            found.setdefault(key, {}).update(value)
        return found

    def _spend(self, num: int) -> None:
        """Counts `num` visited schemas; raises GrammarError if they are too many in total."""
        self._num_steps += num
        if self._num_steps > _MAX_STEPS:
            raise unsupported("in so large a schema")

    def _drop_unused(self, root: Any) -> None:
        """Drops `uniqueItems` from the definitions that the document's main schema does not use."""
        used = {number for each in self._numbers for number in each}
        for each in objects_in(root, but=_DATA):
            if id(each) not in used and each.get("uniqueItems") is True:
                self._dropped[id(each)] = {"uniqueItems": None}

    def _number(self, schemas: Iterable[Any]) -> int:
        """Returns the index of the plan's node for values to which these schemas may apply.

        Adds the node if it is new. Returns -1 if no schema applies.
        """
        every = self._holding(schemas)
        if not every:
            return -1
        key = _ids(every)
        if key not in self._numbers:
            if len(self.plan) >= _MAX_NODES:
                raise unsupported("in so large a schema")
            self._numbers[key] = len(self.plan)
            self.plan.append(PlanNode({}))
            self._left.append(every)
        return self._numbers[key]

    def _holding(self, schemas: Iterable[Any]) -> _Schemas:
        """Returns the schemas, and their subschemas that may apply to the same value."""
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

    def _fill(self, node: PlanNode, schemas: _Schemas) -> None:
        others = [each for schema in schemas for each in _parts(schema, _OTHERS)]
        node.other = self._number(others)
        names = {name for schema in schemas for name in schema.get("properties", {})}
        self._spend(len(names) * len(schemas))
        for name in sorted(names):
            own = [
                schema["properties"].get(name, True) for schema in schemas if "properties" in schema
            ]
            node.names[compact_json(name)] = self._number([*own, *others])
        self._fill_items(node, schemas)
        node.rule = self._rule(schemas)

    def _fill_items(self, node: PlanNode, schemas: _Schemas) -> None:
        first: list[list[Any]] = []
        rest = [e for s in schemas for e in _parts(s, ("contains", "unevaluatedItems"))]
        for schema in schemas:
            listed, items = schema.get("prefixItems"), schema.get("items")
            if isinstance(items, list):
                listed, items = items, schema.get("additionalItems")
            if isinstance(listed, list):
                first.append(listed)
            rest.append(items)
        node.rest = self._number(rest)
        node.items = tuple(
            self._number([*rest, *(each[index] for each in first if index < len(each))])
            for index in range(max(map(len, first), default=0))
        )

    def _rule(self, schemas: _Schemas) -> UniquenessRule | None:
        arrays = [each for each in schemas if "array" in types_of(each)]
        unique = [each for each in arrays if self._is_planned(each)]
        if not unique:
            return None
        _require_plain(arrays)
        kinds = {json.dumps(each["items"]): each["items"] for each in arrays if _has_items(each)}
        if len(kinds) > 1:
            raise unsupported("beside arrays of other items at the same position")
        items: Schema = next(iter(kinds.values()), True)
        for each in unique:
            self._dropped.setdefault(id(each), {})["uniqueItems"] = None
        rules = [
            self._rules.of_array(each, each["items"] if _has_items(each) else items)
            for each in arrays
            if _has_items(each) or any(each is other for other in unique)
        ]
        return rules[0]

    def _is_planned(self, schema: dict[str, Any]) -> bool:
        """Returns whether the plan, and not the schema, has to keep the items of arrays unique.

        If the items are few known values, the schema can list all arrays.
        """
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
            raise unsupported("beside contains or a list of items")
        values = each.get("enum", [each["const"]] if "const" in each else [])
        if any(isinstance(value, list) for value in values):
            raise unsupported("beside arrays that are listed")


def _has_items(schema: dict[str, Any]) -> bool:
    return schema.get("items") not in (None, True, {})


def _ids(schemas: _Schemas) -> tuple[int, ...]:
    return tuple(id(each) for each in schemas)


def _has_unique(root: dict[str, Any]) -> bool:
    return any(each.get("uniqueItems") is True for each in objects_in(root))


def _parts(schema: dict[str, Any], keywords: tuple[str, ...]) -> Iterator[Any]:
    """Yields the subschemas in `keywords`; a keyword holds a schema, or a list or map of them."""
    for keyword in keywords:
        value = schema.get(keyword)
        if isinstance(value, list):
            yield from value
        elif isinstance(value, dict) and keyword in _MAPS:
            yield from value.values()
        elif isinstance(value, dict):
            yield value


def _patched(schema: Any, patches: Patches) -> Any:
    """Returns a copy of a schema with the keywords in `patches` changed."""
    if isinstance(schema, list):
        return [_patched(each, patches) for each in schema]
    if not isinstance(schema, dict):
        return schema
    new = patches.get(id(schema), {})
    kept = {**schema, **new} if new else schema
    return {
        key: _patched(each, patches) for key, each in kept.items() if new.get(key, key) is not None
    }
