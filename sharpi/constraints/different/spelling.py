"""Spelling of JSON values: equal values of an array are told by equal keys."""

from __future__ import annotations

import json
import re
from typing import Any, TypeAlias

_NUMBER = re.compile(rb"(-?)(\d+)(?:\.(\d*))?(?:[eE]([+-]?\d+))?")
_NUMBER_KEY = re.compile(rb"(-?)(\d+)e(-?\d+)")
_MAX_PLAIN = 400  # digits


class Whole:
    """The key of an object or array; equal objects have the same names and equal values."""

    __slots__ = ("_hash", "members")

    def __init__(self, members: dict[bytes, Key] | tuple[Key, ...]) -> None:
        self.members = members
        self._hash = hash(frozenset(members.items()) if isinstance(members, dict) else members)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Whole) and self.members == other.members

    def __hash__(self) -> int:
        return self._hash


# A scalar's key is its text in JSON, with numbers as `digits`e`exponent`.
Key: TypeAlias = bytes | Whole


def spelling_of(value: Any) -> bytes:
    """Returns a value in JSON, each letter spelled in the shortest way."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def scalar_key(spelled: bytes) -> bytes:
    """Returns the key of a scalar as it is spelled in JSON."""
    if spelled[:1] == b'"':
        return text_key(spelled)
    found = _NUMBER.fullmatch(spelled)
    if found is None:
        return spelled
    sign, whole, fraction, exponent = found.groups()
    digits = (whole + (fraction or b"")).lstrip(b"0")
    kept = digits.rstrip(b"0")
    if not kept:
        return b"0e0"
    if len(exponent or b"") > _MAX_PLAIN:
        return spelled
    power = int(exponent or 0) - len(fraction or b"") + len(digits) - len(kept)
    return b"%s%se%d" % (sign, kept, power)


def text_key(spelled: bytes) -> bytes:
    """Returns the text with its quotes, each letter spelled in the shortest way."""
    if b"\\" not in spelled:
        return spelled
    try:
        return spelling_of(json.loads(spelled))
    except ValueError:
        return spelled


def plain_spelling(key: Key) -> bytes | None:
    """Returns how a scalar is spelled where items have to differ; None for what cannot stand there.

    Numbers have no exponent, and neither a zero at the end of a fraction nor one before others.
    """
    if isinstance(key, Whole):
        return None
    found = None if key[:1] == b'"' else _NUMBER_KEY.fullmatch(key)
    if found is None:
        return key
    sign, digits, power = found[1], found[2], int(found[3])
    if abs(power) > _MAX_PLAIN:
        return None
    if power >= 0:
        return sign + digits + b"0" * power
    digits = digits.rjust(1 - power, b"0")
    return sign + digits[:power] + b"." + digits[power:]
