"""Checks a decoded JSON body by its type, with error messages that name the invalid member."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from msgspec import inspect

from sharpi.serve.http.errors import invalid_request

_NAMES: dict[type, str] = {
    inspect.BoolType: "a boolean",
    inspect.IntType: "an integer",
    inspect.FloatType: "a number",
    inspect.StrType: "a string",
    inspect.ListType: "a list",
    inspect.StructType: "an object",
    inspect.DictType: "an object",
}


def checked(kind: type, value: object) -> object:
    """Returns `value` without null members, ready for `msgspec.convert` to `kind`.

    Raises ApiError, whose `param` is the member's path, for a wrong type, a value out of range, and
    a missing or unknown member.
    """
    return _checked(inspect.type_info(kind), value, "", {})


def raise_invalid(path: str, message: str) -> NoReturn:
    """Raises ApiError 400 with the text "'PATH' MESSAGE" for an invalid member."""
    raise invalid_request(f"'{path}' {message}", param=path)


def is_same(value: object, other: object) -> bool:
    """Returns whether two values are equal in JSON, where true is not 1."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _checked(kind: inspect.Type, value: Any, path: str, extra: Mapping[str, Any]) -> Any:
    match kind:
        case inspect.Metadata():
            return _checked(kind.type, value, path, {**extra, **(kind.extra or {})})
        case inspect.UnionType():
            return _of_union(kind.types, value, path, extra)
        case inspect.StructType():
            return _object(kind, value, path)
        case inspect.ListType():
            return _list(kind, value, path, extra)
        case inspect.DictType():
            return _mapping(kind, value, path)
        case inspect.LiteralType():
            return _choice(kind, value, path, extra)
        case inspect.AnyType():
            return _neutral(value, path, extra)
    return _scalar(kind, value, path, extra)


def _of_union(
    kinds: Sequence[inspect.Type], value: Any, path: str, extra: Mapping[str, Any]
) -> Any:
    kinds = [each for each in kinds if not isinstance(each, inspect.NoneType)]
    for kind in kinds:
        if _is_of(_bare(kind), value):
            return _checked(kind, value, path, extra)
    if len(kinds) == 1:
        return _checked(kinds[0], value, path, extra)
    names = [_named(_bare(kind)) for kind in kinds]
    raise_invalid(path, extra.get("must") or f"must be {' or '.join(names)}")


def _object(kind: inspect.StructType, value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        what = f"'{path}'" if path else "the body"
        raise invalid_request(f"{what} must be a JSON object", param=path or None)
    given = {name: each for name, each in value.items() if each is not None}
    found: dict[str, Any] = {}
    for field in sorted(kind.fields, key=lambda field: field.name != "type"):
        name = field.encode_name
        if name in given:
            found[name] = _checked(field.type, given.pop(name), _member(path, name), {})
        elif field.required:
            raise_invalid(_member(path, name), "is required")
    for name in sorted(given):
        unknown = _member(path, name)[:80]
        message = f"unknown parameter: '{unknown}'"
        raise invalid_request(message, param=unknown, code="unknown_parameter")
    return found


def _list(kind: inspect.ListType, value: Any, path: str, extra: Mapping[str, Any]) -> list[Any]:
    if not isinstance(value, list):
        raise_invalid(path, extra.get("must") or "must be a list")
    if kind.max_length is not None and len(value) > kind.max_length:
        raise_invalid(path, f"must have {kind.max_length} {extra.get('items', 'items')} at most")
    if kind.min_length is not None and len(value) < kind.min_length:
        raise_invalid(path, extra.get("must_have") or f"must have {kind.min_length} items at least")
    if "must" in extra and not all(_is_of(_bare(kind.item_type), each) for each in value):
        raise_invalid(path, extra["must"])
    return [
        _checked(kind.item_type, each, f"{path}[{index}]", {}) for index, each in enumerate(value)
    ]


def _mapping(kind: inspect.DictType, value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise_invalid(path, "must be an object")
    if isinstance(_bare(kind.value_type), inspect.AnyType):
        return value
    return {
        name: _checked(kind.value_type, each, _member(path, name[:40]), {})
        for name, each in value.items()
    }


def _choice(kind: inspect.LiteralType, value: Any, path: str, extra: Mapping[str, Any]) -> Any:
    if not isinstance(value, str):
        raise_invalid(path, "must be a string")
    if value in kind.values:
        return value
    if "why" in extra:
        raise_invalid(path, f"'{value[:40]}' cannot be honoured: {extra['why']}")
    raise_invalid(path, f"must be one of {', '.join(map(str, kind.values))}, not '{value[:40]}'")


def _neutral(value: Any, path: str, extra: Mapping[str, Any]) -> Any:
    neutral = json.loads(extra.get("neutral", "null"))
    if neutral is not None and not any(is_same(value, each) for each in neutral):
        raise_invalid(path, f"cannot be honoured: {extra['why']}")
    return value


def _scalar(kind: inspect.Type, value: Any, path: str, extra: Mapping[str, Any]) -> Any:
    if not _is_of(kind, value):
        raise_invalid(path, extra.get("must") or f"must be {_named(kind)}")
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        low, high = kind.ge, kind.le
        if (low is not None and value < low) or (high is not None and value > high):
            raise_invalid(path, f"must be from {low:g} to {high:g}")
        return int(value) if isinstance(kind, inspect.IntType) else value
    return value


def _is_of(kind: inspect.Type, value: Any) -> bool:
    match kind:
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.IntType():
            is_whole = isinstance(value, float) and value.is_integer()
            return (isinstance(value, int) or is_whole) and not isinstance(value, bool)
        case inspect.FloatType():
            return isinstance(value, int | float) and not isinstance(value, bool)
        case inspect.StrType() | inspect.LiteralType():
            return isinstance(value, str)
        case inspect.ListType():
            return isinstance(value, list)
        case inspect.StructType() | inspect.DictType():
            return isinstance(value, dict)
        case inspect.UnionType():
            return any(_is_of(_bare(each), value) for each in kind.types)
    return isinstance(kind, inspect.AnyType)


def _bare(kind: inspect.Type) -> inspect.Type:
    return _bare(kind.type) if isinstance(kind, inspect.Metadata) else kind


def _named(kind: inspect.Type) -> str:
    return _NAMES.get(type(kind), "a string")


def _member(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
