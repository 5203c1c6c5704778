"""NgramDrafter: drafts by looking up the newest tokens in the sequence (prompt lookup)."""

from collections.abc import Sequence

import numpy as np

from sharpi.settings import DraftKind
from sharpi.speculation.draft import Draft, levels_of_match

_NUM_MATCHED = 3  # tokens that have to match; their ids together form a key
_TOKEN_BITS = 21
_KEY_MASK = (1 << _NUM_MATCHED * _TOKEN_BITS) - 1
_NUM_AT_ONCE = 64
_MOST_MATCHED = 64  # the most tokens that are compared, so that a long match beats a short one


class NgramDrafter:
    """Drafts the tokens after the last earlier occurrence of the three newest tokens."""

    kind: DraftKind = "ngram"
    is_free = True

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._ends: dict[int, int] = {}  # for each key, the end of its latest occurrence
        self._newest = 0  # the key of the newest tokens
        # The end of this key's previous occurrence.
        self._before: int | None = None

    def extend(self, tokens: Sequence[int]) -> None:
        if len(tokens) > _NUM_AT_ONCE:
            self._extend_at_once(tokens)
            return
        all_tokens, ends = self._tokens, self._ends
        for token in tokens:
            all_tokens.append(token)
            self._newest = key = (self._newest << _TOKEN_BITS | token) & _KEY_MASK
            end = len(all_tokens)
            self._before = ends.get(key)
            ends[key] = end

    def _extend_at_once(self, tokens: Sequence[int]) -> None:
        """Does the same as `extend`, but five times as fast for many tokens."""
        first = len(self._tokens)
        self._tokens += tokens
        known = self._tokens[max(0, first - _NUM_MATCHED + 1) :]
        ids = np.array([*[0] * (_NUM_MATCHED - 1), *known], np.int64)
        keys = ids[2:] | ids[1:-1] << _TOKEN_BITS | ids[:-2] << 2 * _TOKEN_BITS
        own = keys[len(known) - len(tokens) :].tolist()
        ends = range(first + 1, len(self._tokens) + 1)
        self._newest = own.pop()
        self._ends.update(zip(own, ends, strict=False))
        self._before = self._ends.get(self._newest)
        self._ends[self._newest] = ends[-1]

    def propose(self, most: int) -> Draft | None:
        end = self._before
        if end is None:
            return None
        tokens = self._continuation(end, most)
        return Draft(self.kind, tokens, levels_of_match(self._matched(end), len(tokens)))

    def close(self) -> None:
        """Does nothing: there is nothing to free."""

    def _continuation(self, end: int, most: int) -> tuple[int, ...]:
        """Returns the `most` tokens from position `end` on; if there are fewer, repeats them."""
        tokens = self._tokens[end : end + most]
        while len(tokens) < most:
            tokens += tokens[: most - len(tokens)]
        return tuple(tokens)

    def _matched(self, end: int) -> int:
        """Returns how many tokens before position `end` equal the newest tokens, at most 64."""
        tokens, count, most = self._tokens, min(end, _NUM_MATCHED), min(end, _MOST_MATCHED)
        while count < most and tokens[end - 1 - count] == tokens[~count]:
            count += 1
        return count
