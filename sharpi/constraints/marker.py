"""MarkerMatcher detects the end of a marker such as `</think>`, however it is tokenized."""

from collections.abc import MutableMapping
from functools import cached_property
from weakref import WeakKeyDictionary

from sharpi.constraints.constraint import TokenMask, all_but
from sharpi.tokenizer.reasoning import unfinished
from sharpi.tokenizer.tokenizer import Tokenizer

# Masks by marker and number of its bytes already seen; freed with the tokenizer.
_Masks = dict[tuple[bytes, int], TokenMask]
_masks_of: MutableMapping[Tokenizer, _Masks] = WeakKeyDictionary()


class MarkerMatcher:
    """Detects the token that completes a marker, in a stream of tokens."""

    def __init__(self, tokenizer: Tokenizer, marker: str) -> None:
        self._tokenizer, self._marker = tokenizer, marker
        self._spelling = marker.encode()
        self._num_seen = 0  # bytes of the marker at the end of the text

    @cached_property
    def ids(self) -> list[int]:
        """The marker's token ids, which may include control tokens."""
        ids = self._tokenizer.encode(self._marker, add_bos=False, parse_special=True)
        if b"".join(map(self._tokenizer.token_bytes, ids)) == self._spelling:
            return ids
        return self._tokenizer.encode_inside(self._marker)

    def feed(self, token: int) -> bool:
        """Reads the next token; returns whether it completes the marker, and starts anew then."""
        text = self._spelling[: self._num_seen] + self._tokenizer.token_bytes(token)
        is_complete = self._spelling in text
        self._num_seen = 0 if is_complete else unfinished(text, [self._spelling])
        return is_complete

    def exact(self) -> TokenMask:
        """Returns the mask of all tokens but those that complete the marker and add text after it.

        All tokens are allowed if the marker is a single token.
        """
        if len(self.ids) == 1:
            return all_but((), self._tokenizer.vocab_size)
        return _exact(self._tokenizer, self._spelling, self._num_seen)


def _exact(tokenizer: Tokenizer, marker: bytes, num_seen: int) -> TokenMask:
    """Returns the mask of `MarkerMatcher.exact`, cached since it needs a scan of the vocabulary."""
    masks = _masks_of.setdefault(tokenizer, {})
    mask = masks.get((marker, num_seen))
    if mask is None:
        begun = marker[:num_seen]
        texts = (begun + tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size))
        too_long = [
            i for i, each in enumerate(texts) if marker in each and not each.endswith(marker)
        ]
        mask = masks[marker, num_seen] = all_but(too_long, tokenizer.vocab_size)
    return mask
