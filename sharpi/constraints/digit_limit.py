"""DigitLimit ends the numbers of JSON, to which a weak model may add digits for ever."""

from collections.abc import Sequence

from sharpi.constraints.constraint import TokenMask

MAX_DIGITS = 40  # in a row: as many as integers of 128 bits have
_DIGITS = frozenset(b"0123456789")
_QUOTE, _BACKSLASH = b'"\\'


class DigitLimit:
    """Follows JSON text, and forbids more digits outside of strings after MAX_DIGITS in a row.

    `tokens`: the bytes of each token. `digits`: the mask of the tokens that begin with a digit.
    """

    def __init__(self, tokens: Sequence[bytes], digits: TokenMask) -> None:
        self._tokens, self._digits = tokens, digits
        self._num_digits = 0
        self._in_string = self._is_escaped = False

    def limit(self, mask: TokenMask) -> None:
        """Removes tokens that begin with a digit from a mask, unless no others are in it."""
        if self._num_digits >= MAX_DIGITS and (mask & ~self._digits).any():
            mask &= ~self._digits

    def accept(self, token: int) -> None:
        """Reads the text of the next token."""
        for byte in self._tokens[token]:
            is_digit = byte in _DIGITS and not self._in_string
            self._num_digits = self._num_digits + 1 if is_digit else 0
            if byte == _QUOTE and not self._is_escaped:
                self._in_string = not self._in_string
            self._is_escaped = self._in_string and byte == _BACKSLASH and not self._is_escaped
