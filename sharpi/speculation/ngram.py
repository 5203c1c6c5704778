"""NgramDrafter: looks the newest tokens up in the prompt and the answer (prompt lookup)."""

from collections.abc import Sequence

from sharpi.config import DraftKind
from sharpi.speculation.draft import Draft, levels_of_match

_NUM_MATCHED = 3  # tokens that have to agree
_MOST_MATCHED = 64  # tokens that are compared at most, so that a long match beats a short one


class NgramDrafter:
    """Drafts what followed the latest place in the sequence that ends as the sequence does now."""

    kind: DraftKind = "ngram"
    is_free = True

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._ends: dict[tuple[int, ...], int] = {}  # of the latest place with these tokens
        self._before: int | None = None  # that place before the newest tokens were added

    def extend(self, tokens: Sequence[int]) -> None:
        all_tokens, ends = self._tokens, self._ends
        for token in tokens:
            all_tokens.append(token)
            newest = tuple(all_tokens[-_NUM_MATCHED:])
            end = len(all_tokens)
            self._before = ends.get(newest)
            ends[newest] = end

    def propose(self, most: int) -> Draft | None:
        end = self._before
        if end is None:
            return None
        tokens = self._continuation(end, most)
        return Draft(self.kind, tokens, levels_of_match(self._matched(end), len(tokens)))

    def close(self) -> None:
        """Does nothing: there is nothing to give back."""

    def _continuation(self, end: int, most: int) -> tuple[int, ...]:
        """Returns the tokens from `end` on; where they reach the sequence's end, they go round."""
        tokens = self._tokens[end : end + most]
        while len(tokens) < most:
            tokens += tokens[: most - len(tokens)]
        return tuple(tokens)

    def _matched(self, end: int) -> int:
        """Counts the tokens before `end` that agree with the newest tokens."""
        tokens, count, most = self._tokens, min(end, _NUM_MATCHED), min(end, _MOST_MATCHED)
        while count < most and tokens[end - 1 - count] == tokens[~count]:
            count += 1
        return count
