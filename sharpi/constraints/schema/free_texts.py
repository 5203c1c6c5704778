"""Free texts: strings of which any beginning can go on in more than one way.

That the items of an array differ is enforced while the answer is written where they are free texts:
whatever an answer has begun, it can still become another text.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

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
_ITEM, _ANY = ("item", False), ("any", False)


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
    references = References(root)
    arrays = [(place, each) for place, each in _values(root, references) if _is_array(each)]
    found = [(place, each) for place, each in arrays if _has_different_texts(each, references)]
    _require_names({place for place, _ in found}, arrays, references)
    ids = {id(each) for _, each in found}
    return UniqueTexts(_without_unique(root, ids), frozenset(name for (name, _), _ in found))


def _require_names(
    found: set[_Place], arrays: list[tuple[_Place, dict[str, Any]]], references: References
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
    """Returns a copy in which the schemas of these ids have no `uniqueItems`."""
    if isinstance(schema, list):
        return [_without_unique(each, ids) for each in schema]
    if not isinstance(schema, dict):
        return schema
    dropped = "uniqueItems" if id(schema) in ids else None
    return {key: _without_unique(each, ids) for key, each in schema.items() if key != dropped}


def _is_free_text(schema: Schema, references: References) -> bool:
    """Returns whether a schema allows strings only, and any text of some length."""
    schema = references.resolved(schema)
    return isinstance(schema, dict) and schema.get("type") == "string" and set(schema) <= _FREE


def _has_different_texts(schema: dict[str, Any], references: References) -> bool:
    unique = schema.get("uniqueItems") is True and schema.get("maxItems") not in (0, 1)
    return unique and _is_free_text(schema.get("items", True), references)


def _may_differ(schema: dict[str, Any], references: References) -> bool:
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


def _values(root: Schema, references: References) -> Iterator[tuple[_Place, dict[str, Any]]]:
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
