"""Body: the base class of msgspec Structs that declare the JSON bodies of requests.

msgspec decodes a body by its type. If that fails, `body_faults.py` checks the body again. It finds
the error message, or accepts what some clients send: null for an absent member, 3.0 for 3, and half
a surrogate pair at the end of a truncated text.
"""

import json
import re
from functools import cache
from typing import Annotated, Any, NoReturn, TypeVar

import msgspec
from msgspec import Meta, Struct

from sharpi.serve.http.body_faults import checked, is_same
from sharpi.serve.http.errors import invalid_request

T = TypeVar("T", bound="Body")
_SURROGATE = b"\\ud"
_HALF = re.compile("[\ud800-\udfff]")
_SLICE = 1 << 16  # characters that are replaced at once, without releasing the GIL


def only(*neutral: object, why: str) -> Meta:
    """Declares a member that accepts only the values in `neutral`, which have no effect."""
    schema = {"enum": [*neutral, None], "description": f"Other values are refused: {why}."}
    # As text, since typing treats annotations that differ only in 0 and False as equal.
    return Meta(extra={"neutral": json.dumps(neutral), "why": why}, extra_json_schema=schema)


# A member that does not affect an answer.
Ignored = Annotated[Any, Meta(extra_json_schema={"description": "Accepted without effect."})]


class Body(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An object in a request; null counts as absent, and unknown members are refused."""

    def __post_init__(self) -> None:
        for name, neutral in _neutral_values(type(self)):
            value = getattr(self, name)
            if value is not None and not any(is_same(value, each) for each in neutral):
                raise ValueError(name)  # msgspec turns it into a ValidationError


def decode_body(data: bytes, kind: type[T]) -> T:
    """Decodes a JSON body to `kind`; raises ApiError, which names the invalid member."""
    try:
        body: T = _decoder(kind).decode(data)
        return body
    except (msgspec.DecodeError, RecursionError):  # also catches ValidationError
        value = checked(kind, _json(data))
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, OverflowError, RecursionError) as error:
        raise invalid_request(f"the body cannot be read: {str(error)[:200]}") from None


def build_decoder(kind: type["Body"]) -> None:
    """Builds what decodes bodies of this kind; called before threads decode any.

    msgspec publishes a type's table before it has filled it. Two threads that each build the first
    decoder of a type would crash the process.
    """
    _decoder(kind)
    _neutral_values(kind)


@cache
def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind)


@cache
def _neutral_values(kind: type[Body]) -> tuple[tuple[str, tuple[object, ...]], ...]:
    found = []
    for field in msgspec.inspect.type_info(kind).fields:  # type: ignore[attr-defined]
        extra = getattr(field.type, "extra", None) or {}
        if "neutral" in extra:
            found.append((field.name, tuple(json.loads(extra["neutral"]))))
    return tuple(found)


def _json(data: bytes) -> object:
    """Parses JSON; lone surrogates, as at the end of truncated texts, become U+FFFD."""
    try:
        value: object = json.loads(data, parse_constant=_refuse_constant)
        return _without_halves(value) if _SURROGATE in data.lower() else value
    except (ValueError, RecursionError) as error:
        raise invalid_request(f"the body is not JSON: {str(error)[:200]}") from None


def _without_halves(value: object) -> object:
    match value:
        case str():
            return _whole_text(value)
        case list():
            return [_without_halves(each) for each in value]
        case dict():
            return {_whole_text(name): _without_halves(each) for name, each in value.items()}
    return value


def _whole_text(text: str) -> str:
    parts = (text[start : start + _SLICE] for start in range(0, len(text), _SLICE))
    return "".join(_HALF.sub("\ufffd", part) for part in parts)


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")
