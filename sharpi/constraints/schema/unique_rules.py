"""Rules: by what the items of an array differ, found in the schema of the items.

Scalars differ by themselves. Objects and arrays differ by a scalar that each has and of which there
are always others. Without one, they go on with more properties or items until they differ. Objects
that cannot go on differ by a scalar of few values: then there are no more items than values.
"""

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
    """A scalar by which values differ, and what its schema needs to have it.

    `num_values`: how many there are; None if there are always others.
    """

    path: Path
    leaf: Leaf
    needed: dict[str, Any]
    num_values: int | None = None


class _Property(NamedTuple):
    """A property, and how its values differ in each way of objects."""

    name: str
    found: list[_Differing]

    @property
    def is_same(self) -> bool:
        """True if the values are the same in all ways."""
        return all(_is_same(self.found[0], each) for each in self.found)

    def has_more_than(self, other: "_Property | None") -> bool:
        """Returns whether it has more values than another property."""
        if other is None:
            return True
        num, least = self.found[0].num_values, other.found[0].num_values
        return least is not None and (num is None or num > least)


class Rules:
    """Finds rules in one document; `patches` are what has to be changed in it."""

    def __init__(self, references: References) -> None:
        self._ways = Ways(references)
        self._patterns: set[str] = set()
        # by a schema's id, and whether few values are enough
        self._known: dict[tuple[int, bool], _Differing | None] = {}
        self.patches: Patches = {}

    def of_array(self, schema: dict[str, Any], items: Schema) -> Rule:
        """Returns the rule of an array with these items; raises GrammarError if there is none."""
        rule, needed = self._rule(items, 0, is_few=True)
        if needed:
            patched = items if isinstance(items, dict) else {}
            self.patches.setdefault(id(schema), {})["items"] = {"allOf": [patched], **needed}
        if rule.num_values is not None and rule.num_values < schema.get("minItems", 0):
            num = schema["minItems"]
            raise refusal(f"of {num} items, of which {rule.num_values} are known to be different")
        return rule

    def _rule(self, items: Schema, depth: int, *, is_few: bool) -> tuple[Rule, dict[str, Any]]:
        """Returns a rule, and keywords that the items need for it.

        If `is_few`, objects may differ by a scalar of few values.
        """
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
        by_object = self._way_of_objects(objects, needed, depth, is_few) if objects else None
        by_array = self._way_of_arrays(arrays, needed, depth) if arrays else None
        counted = [way.leaf for way in (by_object, by_array) if way is not None and way.leaf]
        if not objects and not arrays:
            counted = [leaf]
        nums = map(_num_values, counted)
        num = min((each for each in nums if each is not None), default=None)
        return Rule(leaf, by_object, by_array, num), needed

    def _way_of_objects(
        self, ways: list[Merged], needed: dict[str, Any], depth: int, is_few: bool
    ) -> Way:
        always = self._by_name(ways, depth, is_required=True)
        if always is not None:
            return self._way_by(always, ways)
        if all(_is_open(way) for way in ways):
            return Way()
        tries = ((False, False), (True, True), (True, False)) if is_few else ((False, False),)
        for has_few, is_required in tries:
            found = self._by_name(ways, depth, is_required=is_required, is_few=has_few)
            if found is not None:
                if not is_required:
                    needed["required"] = [found.name]
                return self._way_by(found, ways)
        raise refusal("of objects that differ only in few values")

    def _by_name(
        self, ways: list[Merged], depth: int, *, is_required: bool, is_few: bool = False
    ) -> _Property | None:
        """Returns the property by which the objects of all ways differ.

        It is the last of those with the most values.
        """
        best: _Property | None = None
        for name in reversed(ways[0].keywords.get("properties", {})):
            if is_required and any(name not in way.keywords.get("required", ()) for way in ways):
                continue
            found = [self._property(way, name, depth, is_few=is_few) for way in ways]
            each = _Property(name, [value for value in found if value is not None])
            if len(each.found) == len(ways) and each.is_same and each.has_more_than(best):
                best = each
            if best is not None and best.found[0].num_values is None:
                break
        return best

    def _way_by(self, chosen: _Property, ways: list[Merged]) -> Way:
        """Returns the way by a property, whose values get what they need to differ."""
        for way, each in zip(ways, chosen.found, strict=True):
            self._need(way, chosen.name, each.needed)
        first = chosen.found[0]
        return Way((spelling_of(chosen.name), *first.path), first.leaf)

    def _need(self, way: Merged, name: str, needed: dict[str, Any]) -> None:
        """Lets a property have what its value needs to differ."""
        if needed:
            properties = way.keywords["properties"]
            patched = {"allOf": [properties[name]], **needed}
            self.patches.setdefault(id(properties), {})[name] = patched

    def _property(self, way: Merged, name: str, depth: int, *, is_few: bool) -> _Differing | None:
        given = way.keywords
        if name not in given.get("properties", {}) or given.get("patternProperties"):
            return None
        return self._differing(given["properties"][name], depth, is_few=is_few)

    def _differing(self, schema: Schema, depth: int, *, is_few: bool = False) -> _Differing | None:
        """Returns the path to a scalar that has always another value; None if there is none.

        If `is_few`, two values are enough.
        """
        key = id(schema), is_few
        if key not in self._known:
            self._known[key] = self._found(schema, depth, is_few=is_few)
        return self._known[key]

    def _found(self, schema: Schema, depth: int, *, is_few: bool) -> _Differing | None:
        before = dict(self.patches)
        try:
            rule, needed = self._rule(schema, depth + 1, is_few=is_few)
        except GrammarError:
            self.patches = before
            return None
        ways = [each for each in (rule.objects, rule.arrays) if each is not None]
        way = Way((), rule.scalars)
        if ways:
            way = ways[0] if len(ways) == 1 and rule.scalars == Leaf() else Way()
        leaf = way.leaf
        if leaf is None or not leaf.has_more(b"", 1 if is_few else MANY - 1):
            self.patches = before
            return None
        return _Differing(way.path, leaf, needed, _num_values(leaf) if is_few else None)

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


def _is_same(one: _Differing, other: _Differing) -> bool:
    """Returns whether the same holds for both: the same values, or texts of any kind."""
    if one.path != other.path:
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
