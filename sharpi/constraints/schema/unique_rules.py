"""Rules: by what the items of an array differ, found in the schema of the items.

Scalars differ by themselves. Objects and arrays differ by a scalar that each has and of which there
are always others. Without one, they go on with more properties or items until they differ.
"""

import json
from typing import Any, NamedTuple

from sharpi.constraints.different.leaf import Leaf, Path, Rule, Way
from sharpi.constraints.different.spelling import spelling_of
from sharpi.constraints.different.texts import MANY
from sharpi.constraints.schema.item_ways import Merged, Ways, refusal
from sharpi.constraints.schema.references import References, Schema
from sharpi.constraints.schema.unique_leaves import Leaves, Patches
from sharpi.errors import GrammarError

_MAX_DEPTH = 4
_MAX_COUNTED = 2048
_NO_MORE = ("maxProperties", "propertyNames", "patternProperties")


class _Differing(NamedTuple):
    """A scalar of which there are always others, and what its schema needs to have it."""

    path: Path
    leaf: Leaf
    needed: dict[str, Any]


class Rules:
    """Finds rules in one document; `patches` are what has to be changed in it."""

    def __init__(self, references: References) -> None:
        self._ways = Ways(references)
        self._patterns: set[str] = set()
        self._known: dict[int, _Differing | None] = {}  # by a schema's id
        self.patches: Patches = {}

    def of_array(self, schema: dict[str, Any], items: Schema) -> Rule:
        """Returns the rule of an array with these items; raises GrammarError if there is none."""
        rule, needed = self._rule(items, 0)
        if needed:
            patched = items if isinstance(items, dict) else {}
            self.patches.setdefault(id(schema), {})["items"] = {"allOf": [patched], **needed}
        if rule.num_values is not None and rule.num_values < schema.get("minItems", 0):
            num = schema["minItems"]
            raise refusal(f"of {num} items, of which {rule.num_values} are known to be different")
        return rule

    def _rule(self, items: Schema, depth: int) -> tuple[Rule, dict[str, Any]]:
        """Returns a rule, and keywords that the items need for it."""
        if depth > _MAX_DEPTH:
            raise refusal("of items that nest too deeply")
        leaves, found = Leaves(self.patches, self._patterns), self._ways.of(items)
        objects: list[Merged] = []
        arrays: list[Merged] = []
        for way in found:
            values = _values(way)
            if values is not None:
                leaves.add_values(values)
                continue
            for kind in way.types:
                if kind in ("object", "array"):
                    (objects if kind == "object" else arrays).append(way)
                else:
                    leaves.add(way, kind)
        leaf, needed = leaves.leaf(), dict[str, Any]()
        by_object = self._way_of_objects(objects, needed, depth) if objects else None
        by_array = self._way_of_arrays(arrays, needed, depth) if arrays else None
        num = None if objects or arrays else _num_values(leaf)
        return Rule(leaf, by_object, by_array, num), needed

    def _way_of_objects(self, ways: list[Merged], needed: dict[str, Any], depth: int) -> Way:
        always, sometimes = (
            self._names(ways, depth, is_required=is_required) for is_required in (True, False)
        )
        if always is not None:
            return always
        if all(_is_open(way) for way in ways):
            return Way()
        if sometimes is None:
            raise refusal("of objects that differ only in few values")
        name: bytes = sometimes.path[0]  # type: ignore[assignment]
        needed["required"] = [json.loads(name)]
        return sometimes

    def _names(self, ways: list[Merged], depth: int, *, is_required: bool) -> Way | None:
        """Returns the last property by which the objects of all ways differ."""
        for name in reversed(ways[0].keywords.get("properties", {})):
            found = [self._property(way, name, depth, is_required=is_required) for way in ways]
            first = found[0]
            if first is not None and all(_is_same(first, each) for each in found):
                for way, each in zip(ways, found, strict=True):
                    self._need(way, name, each.needed if each else {})
                return Way((spelling_of(name), *first.path), first.leaf)
        return None

    def _need(self, way: Merged, name: str, needed: dict[str, Any]) -> None:
        """Lets a property have what its value needs to differ."""
        if needed:
            properties = way.keywords["properties"]
            patched = {"allOf": [properties[name]], **needed}
            self.patches.setdefault(id(properties), {})[name] = patched

    def _property(
        self, way: Merged, name: str, depth: int, *, is_required: bool
    ) -> _Differing | None:
        given = way.keywords
        if name not in given.get("properties", {}) or given.get("patternProperties"):
            return None
        if is_required and name not in given.get("required", ()):
            return None
        return self._differing(given["properties"][name], depth)

    def _differing(self, schema: Schema, depth: int) -> _Differing | None:
        """Returns the path to a scalar that has always another value; None if there is none."""
        if id(schema) not in self._known:
            self._known[id(schema)] = self._found(schema, depth)
        return self._known[id(schema)]

    def _found(self, schema: Schema, depth: int) -> _Differing | None:
        before = dict(self.patches)
        try:
            rule, needed = self._rule(schema, depth + 1)
        except GrammarError:
            self.patches = before
            return None
        ways = [each for each in (rule.objects, rule.arrays) if each is not None]
        if not ways and rule.scalars.has_more(b"", MANY - 1):
            return _Differing((), rule.scalars, needed)
        if len(ways) == 1 and ways[0].leaf is not None and rule.scalars == Leaf():
            return _Differing(ways[0].path, ways[0].leaf, needed)
        self.patches = before
        return None

    def _way_of_arrays(self, ways: list[Merged], needed: dict[str, Any], depth: int) -> Way:
        if len(ways) > 1:
            raise refusal("of arrays of several kinds")
        given = ways[0].keywords
        first = given.get("prefixItems", given["items"] if _is_tuple(given) else [])
        rest = given.get("additionalItems", True) if _is_tuple(given) else given.get("items", True)
        low, high = given.get("minItems", 0), given.get("maxItems")
        always = [*range(min(low, len(first))), *([low - 1] if low > len(first) else [])]
        for index in reversed(always):
            found = self._differing(first[index] if index < len(first) else rest, depth)
            if found is not None and not found.needed:
                return Way((index, *found.path), found.leaf)
        is_any = rest is True or rest == {}
        if high is None and (is_any or self._differing(rest, depth) is not None):
            return Way()
        found = self._differing(first[0] if first else rest, depth)
        if found is None or found.needed or high == 0 or low:
            raise refusal("of arrays that differ only in few values")
        needed["minItems"] = 1
        return Way((0, *found.path), found.leaf)


def _is_tuple(given: dict[str, Any]) -> bool:
    return isinstance(given.get("items"), list)


def _values(way: Merged) -> list[Any] | None:
    """Returns the values of a way that lists them."""
    given = way.keywords
    if "enum" not in given and "const" not in given:
        return None
    if set(given) - {"enum", "const", "type"}:
        raise refusal("of listed values with other limits")
    values: list[Any] = given["enum"] if "enum" in given else [given["const"]]
    return values


def _num_values(leaf: Leaf) -> int | None:
    """Returns the number of values; None if there are many."""
    if leaf.has_more(b"", _MAX_COUNTED):
        return None
    return next(num for num in range(_MAX_COUNTED + 1) if not leaf.has_more(b"", num))


def _is_open(way: Merged) -> bool:
    """Returns whether objects may have more properties, of any number."""
    given = way.keywords
    more = given.get("additionalProperties", True)
    is_any = more is True or (isinstance(more, dict) and "not" not in more)
    return is_any and not any(each in given for each in _NO_MORE)


def _is_same(one: _Differing, other: _Differing | None) -> bool:
    """Returns whether the same holds for both: the same values, or texts of any kind."""
    if other is None or one.path != other.path:
        return False
    if one.leaf == other.leaf:
        return True
    return all(
        each.texts
        and not each.numbers
        and not each.listed
        and all(texts.is_endless for texts in each.texts)
        for each in (one.leaf, other.leaf)
    )
