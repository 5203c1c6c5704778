"""Bodies: the msgspec Structs that declare the JSON bodies of requests, and how they are decoded.

Members that a Struct does not declare are ignored: clients send every server the same ones. Those
that would change the answer are in `refused`, and are refused unless their value has no effect.
"""

import json
import re
from collections.abc import Mapping
from typing import ClassVar, NoReturn, TypeVar

import msgspec
from msgspec import Struct

from sharpi.serve.http.errors import ApiError, invalid_request

T = TypeVar("T", bound="Body")
Refusals = Mapping[str, tuple[tuple[object, ...], str]]  # values without effect, and the reason
_SURROGATE = b"\\ud"
_HALF = re.compile("[\ud800-\udfff]")
_PLACE = re.compile(r" - at `\$\.?(.*)`$")
_MISSING = re.compile(r"^Object missing required field `(.*?)`")


class Body(Struct, kw_only=True, omit_defaults=True):
    """An object in a request; null stands for an absent member."""

    refused: ClassVar[Refusals] = {}


def build_decoder(kind: type[Body]) -> None:
    """Builds msgspec's table of a kind of body; called before threads decode any.

    msgspec publishes a type's table before it has filled it. Two threads that each use a type for
    the first time would crash the process.
    """
    msgspec.json.Decoder(kind)


def decode_body(data: bytes, kind: type[T]) -> T:
    """Decodes a JSON body to `kind`; raises ApiError, which names the invalid member."""
    value = _json(data)
    if isinstance(value, dict):
        _check_refused(value, kind.refused)
    try:
        # Not strict: some clients write 3.0 for 3.
        return msgspec.convert(value, kind, strict=False)
    except (msgspec.ValidationError, OverflowError, RecursionError) as error:
        raise _invalid(str(error)) from None


def _check_refused(value: Mapping[str, object], refused: Refusals) -> None:
    for name in value.keys() & refused.keys():
        neutral, why = refused[name]
        if value[name] is not None and value[name] not in neutral:
            raise invalid_request(f"'{name}' cannot be honoured: {why}", param=name)


def _invalid(message: str) -> ApiError:
    """Returns ApiError 400 for msgspec's message, which ends with the invalid member's path."""
    place = _PLACE.search(message)
    path = place[1] if place else ""
    text = _PLACE.sub("", message)
    if missing := _MISSING.match(text):
        path = f"{path}.{missing[1]}" if path else missing[1]
        text = "is required"
    text = text.replace("`object`, got `array`", "a JSON object, got `array`")
    return invalid_request(f"'{path}': {text}" if path else f"the body: {text}", param=path or None)


def _json(data: bytes) -> object:
    """Parses JSON; lone surrogates, as at the end of truncated texts, become U+FFFD."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        if _SURROGATE not in data.lower():
            raise invalid_request(f"the body is not JSON: {str(error)[:200]}") from None
    try:
        return _without_halves(json.loads(data, parse_constant=_refuse_constant))
    except (ValueError, RecursionError) as error:
        raise invalid_request(f"the body is not JSON: {str(error)[:200]}") from None


def _without_halves(value: object) -> object:
    match value:
        case str():
            return _HALF.sub("\ufffd", value)
        case list():
            return [_without_halves(each) for each in value]
        case dict():
            return {_HALF.sub("\ufffd", k): _without_halves(v) for k, v in value.items()}
    return value


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")
