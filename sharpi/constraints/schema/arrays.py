"""Rewrites `uniqueItems` over few values, and `contains`, as plain JSON schemas."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, permutations
from math import comb, perm
from typing import Any

from sharpi.constraints.schema.budget import Budget
from sharpi.constraints.schema.references import References, Schema
from sharpi.errors import GrammarError

_MAX_BRANCHES = 1000
_MAX_VALUES = 64
_MAX_POSITIONS = 8  # tried for `contains` in an array without a limit


def unique_arrays(schema: dict[str, Any], references: References, budget: Budget) -> Schema | None:
    """Returns a schema that lists the arrays of distinct items; None if `maxItems` is 0 or 1.

    The items must be few known values, such as an enum, a const or booleans, or else GrammarError
    is raised. Each permutation becomes a branch if there are at most 1000. Otherwise each
    combination in the enum's order becomes one, and sizes with too many combinations are left out.
    """
    low, high = schema.get("minItems", 0), schema.get("maxItems")
    if high is not None and high <= 1:
        return None
    values = values_of(schema.get("items", True), references)
    if values is None:
        raise GrammarError(
            "not supported in a JSON schema: uniqueItems of many values within a negation"
        )
    budget.spend(len(values))
    if len(values) > _MAX_BRANCHES and low <= 1:
        return {"type": "array", "items": schema["items"], "minItems": low, "maxItems": 1}
    high = len(values) if high is None else min(high, len(values))
    choose, high = _chosen(len(values), low, high)
    lists = [each for size in range(low, high + 1) for each in choose(values, size)]
    budget.spend(sum(map(len, lists)))
    return {"anyOf": [_exactly(items) for items in lists]}


def _chosen(num: int, low: int, high: int) -> tuple[Any, int]:
    """Returns `permutations` or `combinations`, and the largest size of the arrays to be listed.

    `num`: the number of values; `low`, `high`: the allowed numbers of items. Raises GrammarError if
    arrays of `low` items alone make too many branches.
    """
    if num <= _MAX_BRANCHES:
        if _most_items(perm, num, low, high) == high:
            return permutations, high
        if (most := _most_items(comb, num, low, high)) >= low:
            return combinations, most
    raise GrammarError(f"not supported in a JSON schema: {low} different items of {num}")


def _most_items(count: Callable[[int, int], int], num: int, low: int, high: int) -> int:
    """Returns the largest number of items, up to `high`, with at most 1000 arrays in all.

    Arrays have at least `low` items. `count(num, size)`: the number of arrays of `size` items.
    """
    total = 0
    for size in range(low, high + 1):
        total += count(num, size)
        if total > _MAX_BRANCHES:
            return size - 1
    return high


def _exactly(values: Sequence[Any]) -> Schema:
    if not values:
        return {"type": "array", "maxItems": 0}
    items = [{"const": value} for value in values]
    size = len(values)
    return {"type": "array", "prefixItems": items, "minItems": size, "maxItems": size}


def values_of(schema: Schema, references: References) -> list[Any] | None:
    """Returns all values that a schema allows; None unless it lists them or they are few."""
    schema = references.resolved(schema)
    if not isinstance(schema, dict):
        return None
    if "enum" in schema:
        return _distinct(schema["enum"])
    if "const" in schema:
        return [schema["const"]]
    if "anyOf" in schema or "oneOf" in schema:
        branches = schema["anyOf"] if "anyOf" in schema else schema["oneOf"]
        parts = [values_of(each, references) for each in branches]
        if any(part is None for part in parts):
            return None
        return _distinct(each for part in parts for each in part or ())
    match schema.get("type"):
        case "boolean":
            return [True, False]
        case "null":
            return [None]
        case "integer":
            return _integers(schema)
    return None


def _integers(schema: dict[str, Any]) -> list[Any] | None:
    low, high = schema.get("minimum"), schema.get("maximum")
    if not isinstance(low, int) or not isinstance(high, int) or high - low >= _MAX_VALUES:
        return None
    return list(range(low, high + 1))


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list({json.dumps(value, sort_keys=True): value for value in values}.values())


def containing(schema: dict[str, Any]) -> Iterator[Schema]:
    """Yields schemas of arrays with an item that matches `contains`, one per position of the item.

    Only the first eight positions are used. Raises GrammarError for `minContains` above 1 and for
    `maxContains`.
    """
    wanted, items = schema["contains"], schema.get("items", True)
    low, high = schema.get("minItems", 0), schema.get("maxItems", _MAX_POSITIONS)
    if schema.get("minContains", 1) == 0 and "maxContains" not in schema:
        yield True
        return
    if schema.get("minContains", 1) != 1 or "maxContains" in schema or "prefixItems" in schema:
        raise GrammarError("not supported in a JSON schema: contains with a number of times")
    if not isinstance(items, dict | bool):
        raise GrammarError("not supported in a JSON schema: contains beside a list of items")
    for position in range(min(high, _MAX_POSITIONS)):
        before = [items] * position
        least = max(low, position + 1)
        found = {"allOf": [items, wanted]}
        yield {"type": "array", "prefixItems": [*before, found], "items": items, "minItems": least}
