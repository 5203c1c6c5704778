"""Numbers of properties, as choices of properties that an object has to have or may have.

llguidance counts only properties that are not listed. Where a choice would have too many branches,
only names that follow each other in the schema are chosen.
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
    """Returns schemas in place of `minProperties` and `maxProperties`, and drops what they replace.

    A limit stays where llguidance enforces it, since all listed properties are required. Raises
    GrammarError if two properties that are not listed would be needed.
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
    """Raises GrammarError if objects need two names that are not listed.

    llguidance lets an object have the same name twice, and JSON counts it once.
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

    Where others are allowed, too, they are counted beside all of the optional ones or none.
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
    """Yields choices of `size` names: all of them, or where these are too many, adjacent ones."""
    if comb(len(names), size) <= _MAX_BRANCHES:
        yield from combinations(names, size)
        return
    for start in range(len(names) - size + 1):
        yield names[start : start + size]
