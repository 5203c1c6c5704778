"""Derives from the schema of an array's items the rule that keeps the items unique.

Scalar items are compared directly. Objects and arrays are told apart by their unique key, a scalar
that each of them has and that always has unused values. Items without a unique key are continued
with more properties or items until they differ. Objects that cannot be continued use a scalar of
few values; then the array has no more items than that scalar has values.
"""

from typing import Any, NamedTuple

from sharpi.constraints.schema.alternatives import Alternative, Alternatives, unsupported
from sharpi.constraints.schema.references import References, Schema
from sharpi.constraints.schema.scalar_collector import Patches, ScalarCollector
from sharpi.constraints.uniqueness.canonical_json import compact_json
from sharpi.constraints.uniqueness.string_set import MANY
from sharpi.constraints.uniqueness.uniqueness_plan import Path, ScalarSet, UniqueKey, UniquenessRule
from sharpi.errors import GrammarError

_MAX_DEPTH = 4
_MAX_COUNTED = 2048
_NO_MORE = ("maxProperties", "propertyNames", "patternProperties")


class _UniqueScalar(NamedTuple):
    """A scalar that tells values apart.

    `needed`: the keywords that the values' schema needs so that each value has the scalar.
    `num_values`: the number of the scalar's values; None if unused ones always remain.
    """

    path: Path
    scalars: ScalarSet
    needed: dict[str, Any]
    num_values: int | None = None


class _Property(NamedTuple):
    """A property that may be the unique key, with its scalar in each alternative."""

    name: str
    found: list[_UniqueScalar]

    @property
    def is_same(self) -> bool:
        """True if the scalar has the same values in all alternatives."""
        return all(_is_same(self.found[0], each) for each in self.found)

    def has_more_than(self, other: "_Property | None") -> bool:
        """Returns whether the scalar has more values than that of another property."""
        if other is None:
            return True
        num, least = self.found[0].num_values, other.found[0].num_values
        return least is not None and (num is None or num > least)


class UniquenessRules:
    """Derives the uniqueness rules of one document.

    `patches`: the keywords to be changed in the document.
    """

    def __init__(self, references: References) -> None:
        self._alternatives = Alternatives(references)
        self._patterns: set[str] = set()
        # by a schema's id and `allows_few`
        self._known: dict[tuple[int, bool], _UniqueScalar | None] = {}
        self.patches: Patches = {}

    def of_array(self, schema: dict[str, Any], items: Schema) -> UniquenessRule:
        """Returns the rule of an array `schema` whose items match `items`.

        Raises GrammarError if no rule can keep the items unique.
        """
        rule, needed = self._rule(items, 0, allows_few=True)
        if needed:
            patched = items if isinstance(items, dict) else {}
            self.patches.setdefault(id(schema), {})["items"] = {"allOf": [patched], **needed}
        if rule.num_values is not None and rule.num_values < schema.get("minItems", 0):
            num = schema["minItems"]
            raise unsupported(
                f"of {num} items, of which {rule.num_values} are known to be different"
            )
        return rule

    def _rule(
        self, items: Schema, depth: int, *, allows_few: bool
    ) -> tuple[UniquenessRule, dict[str, Any]]:
        """Returns the rule of an array, and the keywords that the rule adds to the items' schema.

        If `allows_few`, a scalar of few values may tell objects apart.
        """
        if depth > _MAX_DEPTH:
            raise unsupported("of items that nest too deeply")
        collector = ScalarCollector(self.patches, self._patterns)
        objects: list[Alternative] = []
        arrays: list[Alternative] = []
        for alternative in self._alternatives.of(items):
            values = _values(alternative)
            if values is not None:
                collector.add_values(values)
                continue
            for kind in alternative.types:
                if kind in ("object", "array"):
                    (objects if kind == "object" else arrays).append(alternative)
                else:
                    collector.add(alternative, kind)
        scalars, needed = collector.scalars(), dict[str, Any]()
        by_object = self._key_of_objects(objects, needed, depth, allows_few) if objects else None
        by_array = self._key_of_arrays(arrays, needed, depth) if arrays else None
        counted = [key.scalars for key in (by_object, by_array) if key is not None and key.scalars]
        if not objects and not arrays:
            counted = [scalars]
        nums = map(_num_values, counted)
        num = min((each for each in nums if each is not None), default=None)
        return UniquenessRule(scalars, by_object, by_array, num), needed

    def _key_of_objects(
        self, alternatives: list[Alternative], needed: dict[str, Any], depth: int, allows_few: bool
    ) -> UniqueKey:
        always = self._by_name(alternatives, depth, is_required=True)
        if always is not None:
            return self._key_by(always, alternatives)
        if all(_is_open(alternative) for alternative in alternatives):
            return UniqueKey()
        tries = ((False, False), (True, True), (True, False)) if allows_few else ((False, False),)
        for has_few, is_required in tries:
            found = self._by_name(alternatives, depth, is_required=is_required, allows_few=has_few)
            if found is not None:
                if not is_required:
                    needed["required"] = [found.name]
                return self._key_by(found, alternatives)
        raise unsupported("of objects that differ only in few values")

    def _by_name(
        self,
        alternatives: list[Alternative],
        depth: int,
        *,
        is_required: bool,
        allows_few: bool = False,
    ) -> _Property | None:
        """Returns a property that tells apart the objects of all alternatives; None without one.

        Chooses the property with the most values, and the last one in the schema among equals.
        """
        best: _Property | None = None
        for name in reversed(alternatives[0].keywords.get("properties", {})):
            if is_required and any(
                name not in alternative.keywords.get("required", ()) for alternative in alternatives
            ):
                continue
            found = [
                self._property(alternative, name, depth, allows_few=allows_few)
                for alternative in alternatives
            ]
            each = _Property(name, [value for value in found if value is not None])
            if len(each.found) == len(alternatives) and each.is_same and each.has_more_than(best):
                best = each
            if best is not None and best.found[0].num_values is None:
                break
        return best

    def _key_by(self, chosen: _Property, alternatives: list[Alternative]) -> UniqueKey:
        """Returns the unique key that a property provides, and patches the property's schema."""
        for alternative, each in zip(alternatives, chosen.found, strict=True):
            self._need(alternative, chosen.name, each.needed)
        first = chosen.found[0]
        return UniqueKey((compact_json(chosen.name), *first.path), first.scalars)

    def _need(self, alternative: Alternative, name: str, needed: dict[str, Any]) -> None:
        """Patches the schema of a property with the keywords that its scalar needs."""
        if needed:
            properties = alternative.keywords["properties"]
            patched = {"allOf": [properties[name]], **needed}
            self.patches.setdefault(id(properties), {})[name] = patched

    def _property(
        self, alternative: Alternative, name: str, depth: int, *, allows_few: bool
    ) -> _UniqueScalar | None:
        given = alternative.keywords
        if name not in given.get("properties", {}) or given.get("patternProperties"):
            return None
        return self._differing(given["properties"][name], depth, allows_few=allows_few)

    def _differing(
        self, schema: Schema, depth: int, *, allows_few: bool = False
    ) -> _UniqueScalar | None:
        """Returns a scalar that tells values of the schema apart; None if no scalar does.

        If `allows_few`, a scalar with two values is enough; otherwise unused values must always
        remain.
        """
        key = id(schema), allows_few
        if key not in self._known:
            self._known[key] = self._found(schema, depth, allows_few=allows_few)
        return self._known[key]

    def _found(self, schema: Schema, depth: int, *, allows_few: bool) -> _UniqueScalar | None:
        before = dict(self.patches)
        try:
            rule, needed = self._rule(schema, depth + 1, allows_few=allows_few)
        except GrammarError:
            self.patches = before
            return None
        keys = [each for each in (rule.objects, rule.arrays) if each is not None]
        key = UniqueKey((), rule.scalars)
        if keys:
            key = keys[0] if len(keys) == 1 and rule.scalars == ScalarSet() else UniqueKey()
        scalars = key.scalars
        if scalars is None or not scalars.has_more(b"", 1 if allows_few else MANY - 1):
            self.patches = before
            return None
        return _UniqueScalar(
            key.path, scalars, needed, _num_values(scalars) if allows_few else None
        )

    def _key_of_arrays(
        self, alternatives: list[Alternative], needed: dict[str, Any], depth: int
    ) -> UniqueKey:
        if len(alternatives) > 1:
            raise unsupported("of arrays of several kinds")
        given = alternatives[0].keywords
        first = given.get("prefixItems", given["items"] if _is_tuple(given) else [])
        rest = given.get("additionalItems", True) if _is_tuple(given) else given.get("items", True)
        low, high = given.get("minItems", 0), given.get("maxItems")
        always = [*range(min(low, len(first))), *([low - 1] if low > len(first) else [])]
        for index in reversed(always):
            found = self._differing(first[index] if index < len(first) else rest, depth)
            if found is not None and not found.needed:
                return UniqueKey((index, *found.path), found.scalars)
        is_any = rest is True or rest == {}
        if high is None and (is_any or self._differing(rest, depth) is not None):
            return UniqueKey()
        found = self._differing(first[0] if first else rest, depth)
        if found is None or found.needed or high == 0 or low:
            raise unsupported("of arrays that differ only in few values")
        needed["minItems"] = 1
        return UniqueKey((0, *found.path), found.scalars)


def _is_tuple(given: dict[str, Any]) -> bool:
    return isinstance(given.get("items"), list)


def _values(alternative: Alternative) -> list[Any] | None:
    """Returns the values that an alternative lists in `enum` or `const`; None if it lists none."""
    given = alternative.keywords
    if "enum" not in given and "const" not in given:
        return None
    if set(given) - {"enum", "const", "type"}:
        raise unsupported("of listed values with other limits")
    values: list[Any] = given["enum"] if "enum" in given else [given["const"]]
    return values


def _num_values(scalars: ScalarSet) -> int | None:
    """Returns the number of values in the set; None above 2048."""
    if scalars.has_more(b"", _MAX_COUNTED):
        return None
    return next(num for num in range(_MAX_COUNTED + 1) if not scalars.has_more(b"", num))


def _is_open(alternative: Alternative) -> bool:
    """Returns whether an alternative's objects may have any number of unlisted properties."""
    given = alternative.keywords
    more = given.get("additionalProperties", True)
    is_any = more is True or (isinstance(more, dict) and "not" not in more)
    return is_any and not any(each in given for each in _NO_MORE)


def _is_same(one: _UniqueScalar, other: _UniqueScalar) -> bool:
    """Returns whether two scalars have the same values, or both allow infinitely many strings."""
    if one.path != other.path:
        return False
    if one.scalars == other.scalars:
        return True
    return all(
        each.texts
        and not each.numbers
        and not each.listed
        and all(texts.is_infinite for texts in each.texts)
        for each in (one.scalars, other.scalars)
    )
