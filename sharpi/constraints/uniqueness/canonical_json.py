"""Canonical forms of JSON values: two values are equal exactly if their canonical forms are."""

from __future__ import annotations

import json
import re
from typing import Any, TypeAlias

_NUMBER = re.compile(rb"(-?)(\d+)(?:\.(\d*))?(?:[eE]([+-]?\d+))?")
_NUMBER_KEY = re.compile(rb"(-?)(\d+)e(-?\d+)")
_MAX_PLAIN = 400  # digits


class CanonicalContainer:
    """The canonical form of an object or array, which can be hashed.

    The order of an object's properties does not count.
    """

    __slots__ = ("_hash", "members")

    def __init__(self, members: dict[bytes, CanonicalValue] | tuple[CanonicalValue, ...]) -> None:
        self.members = members
        self._hash = hash(frozenset(members.items()) if isinstance(members, dict) else members)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CanonicalContainer) and self.members == other.members

    def __hash__(self) -> int:
        return self._hash


# A scalar's canonical form is its JSON text, with numbers as `digits`e`exponent`.
CanonicalValue: TypeAlias = bytes | CanonicalContainer


def compact_json(value: Any) -> bytes:
    """Returns a value as JSON text with the fewest escapes, in UTF-8."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def canonical_scalar(literal: bytes) -> bytes:
    """Returns the canonical form of a scalar's JSON text."""
    if literal[:1] == b'"':
        return canonical_string(literal)
    found = _NUMBER.fullmatch(literal)
    if found is None:
        return literal
    sign, whole, fraction, exponent = found.groups()
    digits = (whole + (fraction or b"")).lstrip(b"0")
    kept = digits.rstrip(b"0")
    if not kept:
        return b"0e0"
    if len(exponent or b"") > _MAX_PLAIN:
        return literal
    power = int(exponent or 0) - len(fraction or b"") + len(digits) - len(kept)
    return b"%s%se%d" % (sign, kept, power)


def canonical_string(literal: bytes) -> bytes:
    """Returns a JSON string, in quotes, with the fewest escapes."""
    if b"\\" not in literal:
        return literal
    try:
        return compact_json(json.loads(literal))
    except ValueError:
        return literal


def plain_literal(key: CanonicalValue) -> bytes | None:
    """Converts a scalar's canonical form to the JSON text required where items must be unique.

    Numbers have no exponent, no leading zero and no trailing zero in the fraction. Returns None for
    objects and arrays, and for numbers of more than 400 digits.
    """
    if isinstance(key, CanonicalContainer):
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
