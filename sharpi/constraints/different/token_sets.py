"""TokenSets: which tokens of a vocabulary may matter to the items of an array."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from sharpi.constraints.constraint import TokenMask
from sharpi.constraints.mask import mask_of

_STRUCTURE = b'"[]{},'


class TokenSets:
    """The bytes of each token, and masks of some of them.

    `arrays` begin an array and go on, as do `quoted_arrays` after the end of a string. `quotes`
    have a quote, `structure` a sign that begins or ends something. `second_spellings` spell a
    letter in a second way, as do those `after_backslash` where that has come.
    """

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self.tokens = tokens
        self.ids = {data: token for token, data in enumerate(tokens) if data}
        found: dict[str, list[int]] = {name: [] for name in _KINDS}
        for token, data in enumerate(tokens):
            for name, holds in _KINDS.items():
                if holds(data):
                    found[name].append(token)
        masks = [mask_of(ids, len(tokens)) for ids in found.values()]
        self.arrays, self.quoted_arrays, self.quotes, self.structure = masks[:4]
        self.second_spellings, self.after_backslash = masks[4:]

    def beginning(self, text: bytes) -> Iterator[int]:
        """Yields the tokens that are a beginning of a text."""
        for end in range(1, len(text) + 1):
            token = self.ids.get(text[:end])
            if token is not None:
                yield token


_KINDS: dict[str, Callable[[bytes], bool]] = {
    "arrays": lambda data: b"[" in data[:-1],
    "quoted_arrays": lambda data: b"[" in data.partition(b'"')[2],
    "quotes": lambda data: b'"' in data,
    "structure": lambda data: any(byte in _STRUCTURE for byte in data),
    "second_spellings": lambda data: b"\\u" in data or b"\\/" in data,
    "after_backslash": lambda data: data[:1] in (b"u", b"/"),
}


def ids_in(mask: TokenMask) -> list[int]:
    """Returns the tokens of a mask."""
    words = np.flatnonzero(mask)
    bits = np.unpackbits(mask[words].view(np.uint8), bitorder="little").reshape(-1, 32)
    rows, columns = np.nonzero(bits)
    found: list[int] = (words[rows] * 32 + columns).tolist()
    return found
