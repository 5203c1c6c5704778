"""QuoteTokens: what the tokens of a vocabulary do to the strings of a JSON text."""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence

from sharpi.constraints.mask import mask_of

_NOTEWORTHY = re.compile(rb'["\\\\]|^[u/]')
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_ARRAY_AND_TEXT = re.compile(rb'\[[^"]*"[^"]*"')


class QuoteTokens:
    """The bytes of each token, masks of some of them, and the tokens that end a string.

    Seen from outside of a string, `arrays` may hold the beginning of an array and a string in it,
    and `whole_texts` a whole string. Seen from within one, `more_texts` may end it and hold another
    one, or spell a letter in a second way; so may `after_backslash` when an escape has begun.
    """

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self.tokens = tokens
        self._ends: defaultdict[bytes, list[int]] = defaultdict(list)
        found: dict[str, list[int]] = {name: [] for name in _KINDS}
        for token, data in enumerate(tokens):
            if _NOTEWORTHY.search(data):
                self._note_end(token, data)
                for name, holds in _KINDS.items():
                    if holds(data):
                        found[name].append(token)
        masks = [mask_of(ids, len(tokens)) for ids in found.values()]
        self.arrays, self.whole_texts, self.more_texts, self.after_backslash = masks

    def _note_end(self, token: int, data: bytes) -> None:
        content, quote, _ = _without_escapes(data).partition(b'"')
        if quote:
            self._ends[data[: len(content)]].append(token)

    def ending(self, rest: bytes) -> list[int]:
        """Returns the tokens that write the rest of a string that has begun, and end it."""
        return self._ends.get(rest, [])


def _without_escapes(data: bytes) -> bytes:
    """Returns a text of the same length, without escaped quotes."""
    return _ESCAPE.sub(b"__", data)


def _has_two_spellings(data: bytes) -> bool:
    return b"\\u" in data or b"\\/" in data


_KINDS: dict[str, Callable[[bytes], bool]] = {
    "arrays": lambda data: _ARRAY_AND_TEXT.search(data) is not None,
    "whole_texts": lambda data: data.count(b'"') > 1,
    "more_texts": lambda data: _without_escapes(data).count(b'"') > 2 or _has_two_spellings(data),
    "after_backslash": lambda data: (
        b'"' in data[1:] or data[:1] in (b"u", b"/") or _has_two_spellings(data)
    ),
}
