"""The numbers of the rules for expert slots, read from kernels/slot_rules.h."""

import re
from functools import cache

from sharpi.resources import kernels_folder

_LINE = re.compile(r"constexpr (?:int|float|double) k(\w+) = ([^;]+);")


def whole(name: str) -> int:
    """Returns the whole number `kNAME`; raises KeyError if there is none of that name."""
    return int(slot_rules()[name])


def real(name: str) -> float:
    """Returns the number `kNAME`; raises KeyError if there is none of that name."""
    return slot_rules()[name]


@cache
def slot_rules() -> dict[str, float]:
    """Returns all numbers by name, without the leading `k`."""
    text = (kernels_folder() / "slot_rules.h").read_text("utf-8")
    return {name: _number(value) for name, value in _LINE.findall(text)}


def _number(text: str) -> float:
    digits = text.removesuffix("f")
    return float.fromhex(digits) if digits.startswith("0x") else float(digits)
