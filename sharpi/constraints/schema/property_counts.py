"""Rewrites `minProperties` and `maxProperties` to alternatives of required and allowed names.

llguidance counts only properties that `properties` does not list. If there would be too many
alternatives, only sets of names that are adjacent in the schema are used.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import comb
from typing import Any

from sharpi.constraints.schema.facts import Facts
from sharpi.constraints.schema.references import Schema
from sharpi.errors import GrammarError

_MAX_BRANCHES = 40


def counted_properties(schema: dict[str, Any], facts: Facts) -> list[Schema]:
    """Drops `minProperties` and `maxProperties` from `schema` and returns schemas to replace them.

    If all listed properties are required, llguidance enforces the keywords and they are kept.
    Raises GrammarError if an object would need two properties that are not listed.
    """
    names = [name for name in facts.properties if facts.allows(name)]
    optional = [name for name in names if name not in facts.required]
    low, high = schema.get("minProperties"), schema.get("maxProperties")
    _require_listed(schema, facts)
    if not optional or not all(each is None or type(each) is int for each in (low, high)):
        return []
    num = len(facts.required)
    if low is not None and low > num + len(optional):
        return [{"required": optional}]
    least = max(0, (low or 0) - num)
    more = [_at_least(optional, least)] if least else []
    schema.pop("minProperties", None)
    if high is not None and high >= num:
        most = min(high - num, len(optional))
        more += [_at_most(optional, most, high, facts)]
        del schema["maxProperties"]
    return more


def _require_listed(schema: dict[str, Any], facts: Facts) -> None:
    """Raises GrammarError if an object needs two properties that are not listed.

    llguidance would allow the same unlisted name twice, which a JSON parser counts once.
    """
    low, listed = schema.get("minProperties"), {*facts.properties, *facts.required}
    if type(low) is not int or facts.only is not None or "object" not in facts.types:
        return
    choices = [schema[each] for each in ("anyOf", "oneOf") if isinstance(schema.get(each), list)]
    more = sum(min(map(_num_named, branches), default=0) for branches in choices)
    if low - len(listed) - more > 1:
        raise GrammarError(
            f"not supported in a JSON schema: minProperties of {low}, which {len(listed) + more}"
            " listed names cannot reach"
        )


def _num_named(branch: Schema) -> int:
    return len(branch.get("required", ())) if isinstance(branch, dict) else 0


def _at_least(optional: Sequence[str], least: int) -> Schema:
    return {"anyOf": [{"required": list(names)} for names in _choices(optional, least)]}


def _at_most(optional: Sequence[str], most: int, high: int, facts: Facts) -> Schema:
    """Returns a schema of objects with at most `most` of the optional properties.

    An object with unlisted properties must have none of the optional properties, or all of them.
    """
    branches: list[Schema] = [
        {
            "properties": dict.fromkeys([*facts.required, *names], True),
            "additionalProperties": False,
        }
        for names in _choices(optional, most)
    ]
    if facts.only is None:
        branches.append({"properties": dict.fromkeys(optional, False), "maxProperties": high})
        if most == len(optional):
            branches.append({"required": list(optional), "maxProperties": high})
    return {"anyOf": branches}


def _choices(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """Yields all combinations of `size` names, or only runs of adjacent names if too many."""
    if comb(len(names), size) <= _MAX_BRANCHES:
        yield from combinations(names, size)
        return
    for start in range(len(names) - size + 1):
        yield names[start : start + size]
