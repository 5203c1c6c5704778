"""NumberRange: a range of numbers, and how many of them begin with a prefix when written out."""

import re
from collections.abc import Iterator
from fractions import Fraction

from msgspec import Struct

_BEGUN = re.compile(rb"(-?)(?:(0|[1-9][0-9]*)(?:\.([0-9]*))?)?")
_WHOLE = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]*[1-9])?")
_MAX_POWER = 400


class NumberRange(Struct, frozen=True):
    """The numbers of a range, or only the multiples of `step` in it.

    Numbers are written without an exponent and without zeros that can be left out.
    """

    low: Fraction | None = None
    high: Fraction | None = None
    has_low: bool = True  # whether the limit itself belongs to the range
    has_high: bool = True
    step: int | None = None  # None for all real numbers, 1 for all integers

    def has_more(self, prefix: bytes, most: int) -> bool:
        """Returns whether more than `most` numbers of the range begin with the text `prefix`."""
        found = _BEGUN.fullmatch(prefix)
        if found is None:
            return False
        sign, whole, fraction = found.groups()
        if not prefix:
            return self._has_more_above(None, most)
        mirrored = self._mirrored() if sign else self
        if whole is None:
            return mirrored._has_more_above(0, most)
        if sign and whole == b"0" and fraction is None:
            fraction = b""  # there is no -0
        return mirrored._has_more_positive(whole, fraction, most)

    def _has_more_above(self, least: int | None, most: int) -> bool:
        """Returns whether more than `most` numbers of the range exceed `least`; None counts all."""
        if self.step is not None:
            return self._num_integers(None if least is None else least + 1, None, most) > most
        low = self.low if least is None else max(Fraction(least), self.low or Fraction(least))
        if low is None or self.high is None or low < self.high:
            return True
        return most < 1 and least is None and self._holds(low)

    def _mirrored(self) -> "NumberRange":
        low = None if self.high is None else -self.high
        high = None if self.low is None else -self.low
        return NumberRange(low, high, self.has_high, self.has_low, self.step)

    def _has_more_positive(self, whole: bytes, fraction: bytes | None, most: int) -> bool:
        if len(whole) > _MAX_POWER or len(fraction or b"") > _MAX_POWER:
            return True
        if self.step is not None:
            return fraction is None and self._has_more_integers(int(whole), most)
        num = 0
        text = whole if fraction is None else whole + b"." + fraction
        if _WHOLE.fullmatch(text) is not None and self._holds(Fraction(text.decode())):
            num += 1
        begin = Fraction(f"{whole.decode()}.{(fraction or b'').decode()}0")
        size = Fraction(1, 10 ** len(fraction or b""))
        spans = self._longer(begin, size, is_longer=fraction is None and whole != b"0")
        return num > most or any(self._meets(low, high) for low, high in spans)

    def _longer(
        self, begin: Fraction, size: Fraction, *, is_longer: bool
    ) -> Iterator[tuple[Fraction, Fraction]]:
        """Yields the intervals (low, high) of numbers with the same first digits.

        The first interval begins at `begin` and has the length `size`. If `is_longer`, more
        intervals follow, one for each number of further digits.
        """
        yield begin, begin + size
        for power in range(1, _MAX_POWER if is_longer else 0):
            low = begin * 10**power
            if self.high is not None and low > self.high:
                return
            yield low, low + size * 10**power

    def _meets(self, low: Fraction, high: Fraction) -> bool:
        """Returns whether the range has infinitely many real numbers between `low` and `high`."""
        first = low if self.low is None else max(low, self.low)
        last = high if self.high is None else min(high, self.high)
        return first < last

    def _holds(self, value: Fraction) -> bool:
        if self.low is not None and (value < self.low or (value == self.low and not self.has_low)):
            return False
        return self.high is None or value < self.high or (value == self.high and self.has_high)

    def _has_more_integers(self, begin: int, most: int) -> bool:
        num, high = 0, self._integers()[1]
        for power in range(_MAX_POWER if begin else 1):
            first, last = begin * 10**power, (begin + 1) * 10**power - 1
            if num > most or (high is not None and first > high):
                break
            num += self._num_integers(first, last, most)
        return num > most

    def _num_integers(self, first: int | None, last: int | None, most: int) -> int:
        """Returns the number of multiples of `step` in the range, from `first` to `last`.

        Returns `most` + 1 if it is infinite.
        """
        step, (low, high) = self.step or 1, self._integers()
        lows = [each for each in (low, first) if each is not None]
        highs = [each for each in (high, last) if each is not None]
        if not lows or not highs:
            return most + 1
        return max(0, min(highs) // step - (max(lows) - 1) // step)

    def _integers(self) -> tuple[int | None, int | None]:
        """Returns the least and the largest integer of the range; None where there is no limit."""
        low = high = None
        if self.low is not None:
            low = -(-self.low // 1) if self.has_low else self.low // 1 + 1
        if self.high is not None:
            high = self.high // 1 if self.has_high else -(-self.high // 1) - 1
        return low, high


def is_plain_number(literal: bytes) -> bool:
    """Returns whether a number's text has no exponent and no needless zeros, as in unique items."""
    return literal != b"-0" and _WHOLE.fullmatch(literal) is not None
