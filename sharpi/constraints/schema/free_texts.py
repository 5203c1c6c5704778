"""Free texts: strings of which any beginning can go on in more than one way.

That the items of an array differ is enforced while the answer is written where they are free texts:
whatever an answer has begun, it can still become another text.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from sharpi.constraints.schema.endless import is_endless
from sharpi.constraints.schema.formats import FORMATS
from sharpi.constraints.schema.references import References, Schema
from sharpi.errors import GrammarError

_FREE = frozenset(["type", "minLength", "title", "description", "default", "examples", "$comment"])
_SAME_VALUE = ("allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "dependencies")
_ITEMS = ("items", "prefixItems", "additionalItems", "contains", "unevaluatedItems")
_MAPS = frozenset(["properties", "patternProperties", "dependentSchemas", "dependencies"])
_OTHERS = ("patternProperties", "additionalProperties", "unevaluatedProperties")
# Where a value stands in its document, beside the names of properties: as a whole, as an item, or
# by a name that is not listed.
_Place: TypeAlias = tuple[str, bool]  # a name, and whether it is that of a listed property
ROOT = ""
_MAX_PATTERNS = 8  # looked at in one document, each for some milliseconds
_ITEM, _ANY = ("item", False), ("any", False)


class _Document(References):
    """The schemas of one document, and whether a few of its patterns are endless."""

    def __init__(self, root: Schema) -> None:
        super().__init__(root)
        self._endless: dict[str, bool] = {}

    def is_endless(self, pattern: str) -> bool:
        """Returns whether a pattern is known to be endless; False for all beyond the first few."""
        if pattern not in self._endless and len(self._endless) < _MAX_PATTERNS:
            try:
                self._endless[pattern] = is_endless(pattern)
            except GrammarError:
                self._endless[pattern] = False
        return self._endless.get(pattern, False)


class UniqueTexts(NamedTuple):
    """A schema without `uniqueItems` of free texts, and the names of the arrays that had it."""

    schema: Schema
    names: frozenset[str]  # of the properties; ROOT is the document itself


def unique_texts(root: Schema) -> UniqueTexts:
    """Takes `uniqueItems` of free texts from a schema.

    Raises GrammarError if such an array has no name, or if another array of the same name may have
    items that are not free.
    """
    if not isinstance(root, dict) or not _mentions(root, "uniqueItems"):
        return UniqueTexts(root, frozenset())
    references = _Document(root)
    arrays = [(place, each) for place, each in _values(root, references) if _is_array(each)]
    found = [(place, each) for place, each in arrays if _has_different_texts(each, references)]
    _require_names({place for place, _ in found}, arrays, references)
    ids = {id(each) for _, each in found}
    return UniqueTexts(_without_unique(root, ids), frozenset(name for (name, _), _ in found))


def _require_names(
    found: set[_Place], arrays: list[tuple[_Place, dict[str, Any]]], references: _Document
) -> None:
    if not all(is_name for _, is_name in found):
        raise GrammarError(
            "not supported in a JSON schema: uniqueItems of texts in an array without a name"
        )
    for place, each in arrays if found else ():
        if (place in found or place == _ANY) and not _may_differ(each, references):
            raise GrammarError(
                "not supported in a JSON schema: uniqueItems of texts beside arrays of other items"
                " that may have the same name"
            )


def _without_unique(schema: Any, ids: set[int]) -> Any:
    """Returns a copy in which the schemas of these ids have no `uniqueItems`.

    Items of any kind become texts there.
    """
    if isinstance(schema, list):
        return [_without_unique(each, ids) for each in schema]
    if not isinstance(schema, dict):
        return schema
    is_found = id(schema) in ids
    dropped = "uniqueItems" if is_found else None
    found = {key: _without_unique(each, ids) for key, each in schema.items() if key != dropped}
    return found | {"items": {"type": "string"}} if is_found and _has_any_items(schema) else found


def _is_free_text(schema: Schema, references: _Document) -> bool:
    """Returns whether a schema allows strings only, and each beginning has endless ends."""
    schema = references.resolved(schema)
    if not isinstance(schema, dict) or schema.get("type") != "string":
        return False
    more = set(schema) - _FREE
    if "format" in more and schema["format"] not in FORMATS:
        more.remove("format")
    return not more or (more == {"pattern"} and references.is_endless(schema["pattern"]))


def _has_different_texts(schema: dict[str, Any], references: _Document) -> bool:
    if schema.get("uniqueItems") is not True or schema.get("maxItems") in (0, 1):
        return False
    return _has_any_items(schema) or _is_free_text(schema.get("items", True), references)


def _has_any_items(schema: dict[str, Any]) -> bool:
    return schema.get("items", True) in (True, {})


def _may_differ(schema: dict[str, Any], references: _Document) -> bool:
    """Returns whether an array's texts may be held to be different without a dead end."""
    if {"enum", "const", "prefixItems", "contains"} & set(schema):
        return False
    items = references.resolved(schema.get("items", True))
    if items is True or _is_free_text(items, references):
        return True
    return isinstance(items, dict) and not _may_have_type(items, "string")


def _is_array(schema: dict[str, Any]) -> bool:
    return _may_have_type(schema, "array")


def _may_have_type(schema: dict[str, Any], name: str) -> bool:
    types = schema.get("type", name)
    return name in (types if isinstance(types, list) else [types])


def _mentions(root: Any, keyword: str) -> bool:
    left = [root]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            if keyword in each:
                return True
            left += each.values()
        elif isinstance(each, list):
            left += each
    return False


def _values(root: Schema, references: _Document) -> Iterator[tuple[_Place, dict[str, Any]]]:
    """Yields the schemas of a document that hold for values, each with the value's place."""
    seen: set[tuple[int, _Place]] = set()
    left: list[tuple[_Place, Any]] = [((ROOT, True), root)]
    while left:
        place, schema = left.pop()
        if not isinstance(schema, dict) or (id(schema), place) in seen:
            continue
        seen.add((id(schema), place))
        yield place, schema
        left += _inner(place, schema)
        if "$ref" in schema:
            left.append((place, references.target(schema["$ref"])))


def _inner(place: _Place, schema: dict[str, Any]) -> Iterator[tuple[_Place, Any]]:
    for name, each in _parts(schema, ("properties",)):
        yield (name, True), each
    for keywords, other in ((_SAME_VALUE, place), (_ITEMS, _ITEM), (_OTHERS, _ANY)):
        for _, each in _parts(schema, keywords):
            yield other, each


def _parts(schema: dict[str, Any], keywords: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yields the schemas in keywords, which have one, a list of them, or a map."""
    for keyword in keywords:
        value = schema.get(keyword)
        if isinstance(value, list):
            yield from ((keyword, each) for each in value)
        elif isinstance(value, dict) and keyword in _MAPS:
            yield from value.items()
        elif isinstance(value, dict):
            yield keyword, value
