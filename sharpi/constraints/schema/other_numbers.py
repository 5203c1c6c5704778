"""Schemas of numbers that are not multiples of a divisor, for negated `multipleOf`."""

from collections.abc import Iterator
from typing import Any

from sharpi.constraints.schema.references import Schema
from sharpi.errors import GrammarError

_NEAR = 8  # multiples on each side of zero
_POWERS = 10  # farther ones are near powers of ten, for schemas with other limits


def other_multiples(divisor: Any) -> Iterator[Schema]:
    """Yields schemas of ranges between two adjacent multiples, near zero and near powers of ten.

    For an integer divisor, a range has the integers between the multiples. For other divisors, it
    has the numbers far enough from both multiples that rounding does not turn them into a multiple.
    """
    if isinstance(divisor, bool) or not isinstance(divisor, int | float) or divisor <= 0:
        raise GrammarError("the JSON schema has a multipleOf that is no positive number")
    is_whole = divisor == int(divisor) and divisor > 1
    far = [int(10**power / divisor) + 1 for power in range(_POWERS)]
    for place in sorted({*range(-_NEAR, _NEAR), *far, *(-each - 1 for each in far)}):
        if is_whole:
            low = place * int(divisor)
            yield {"type": "integer", "minimum": low + 1, "maximum": low + int(divisor) - 1}
        else:
            low, high = (place + 0.25) * divisor, (place + 0.75) * divisor
            yield {"type": "number", "minimum": low, "maximum": high}
