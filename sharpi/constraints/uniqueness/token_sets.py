"""TokenSets: the tokens of a vocabulary that can complete or begin an item of an array."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from sharpi.constraints.constraint import TokenMask
from sharpi.constraints.mask import mask_of

_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_STRUCTURE = b'"[]{},'
# After the end of a string: a separator, and of the next value no more than its first quote.
_SIMPLE_TAIL = re.compile(rb'[ \t\r\n]*(?:[,:][ \t\r\n]*)?"?')


class TokenSets:
    """The bytes of each token, and masks of the tokens with certain bytes.

    `arrays`: tokens with `[` before the last byte; `arrays_after_quote`: with `[` after a quote.
    `quotes`: tokens with a quote.
    `structure`: tokens with one of `"[]{},`.
    `run_on`: tokens with a quote and more text after it than a separator and another quote.
    `string_starts`: tokens that begin a string and do not end it.
    `digits`: tokens of only digits; `zeros`: digits, the first a 0; `long_digits`: several digits.
    `redundant_escapes`: tokens with an escape that is not the shortest form of its character.
    `after_backslash`: tokens that complete a redundant escape after a backslash.
    """

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self.tokens = tokens
        self._ids = {data: token for token, data in enumerate(tokens) if data}
        self._ends: defaultdict[bytes, list[int]] = defaultdict(list)
        found: dict[str, list[int]] = {name: [] for name in _KINDS}
        for token, data in enumerate(tokens):
            for name, holds in _KINDS.items():
                if holds(data):
                    found[name].append(token)
        for token in found["quotes"]:
            content, quote, _ = _without_escapes(tokens[token]).partition(b'"')
            if quote:
                self._ends[tokens[token][: len(content) + 1]].append(token)
        masks = {name: mask_of(ids, len(tokens)) for name, ids in found.items()}
        self.arrays, self.arrays_after_quote = masks["arrays"], masks["arrays_after_quote"]
        self.quotes, self.structure = masks["quotes"], masks["structure"]
        self.run_on, self.string_starts = masks["run_on"], masks["string_starts"]
        self.digits, self.zeros = masks["digits"], masks["zeros"]
        self.long_digits = masks["long_digits"]
        self.redundant_escapes = masks["redundant_escapes"]
        self.after_backslash = masks["after_backslash"]

    def writing(self, text: bytes) -> Iterator[int]:
        """Yields the tokens that are prefixes of `text`, and those that begin with all of it.

        The latter are only found if `text` ends with a string's closing quote.
        """
        for end in range(1, len(text) + 1):
            token = self._ids.get(text[:end])
            if token is not None:
                yield token
        yield from self._ends.get(text, ())


def _without_escapes(data: bytes) -> bytes:
    """Returns a text of the same length with escapes, and thus escaped quotes, blanked out."""
    return _ESCAPE.sub(b"__", data)


def _runs_on(data: bytes) -> bool:
    _, quote, tail = _without_escapes(data).partition(b'"')
    return bool(quote) and _SIMPLE_TAIL.fullmatch(tail) is None


_KINDS: dict[str, Callable[[bytes], bool]] = {
    "arrays": lambda data: b"[" in data[:-1],
    "arrays_after_quote": lambda data: b'"' in data and b"[" in data.partition(b'"')[2],
    "quotes": lambda data: b'"' in data,
    "structure": lambda data: any(byte in _STRUCTURE for byte in data),
    "run_on": lambda data: b'"' in data and _runs_on(data),
    "string_starts": lambda data: data[:1] == b'"' and b'"' not in _without_escapes(data[1:]),
    "digits": bytes.isdigit,
    "zeros": lambda data: data[:1] == b"0" and data.isdigit(),
    "long_digits": lambda data: len(data) > 1 and data.isdigit(),
    "redundant_escapes": lambda data: b"\\u" in data or b"\\/" in data,
    "after_backslash": lambda data: data[:1] in (b"u", b"/"),
}


def ids_in(mask: TokenMask) -> list[int]:
    """Returns the ids of the tokens that a mask allows."""
    words = np.flatnonzero(mask)
    bits = np.unpackbits(mask[words].view(np.uint8), bitorder="little").reshape(-1, 32)
    rows, columns = np.nonzero(bits)
    found: list[int] = (words[rows] * 32 + columns).tolist()
    return found
