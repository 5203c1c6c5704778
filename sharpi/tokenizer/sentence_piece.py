"""SentencePiece BPE: merges adjacent pieces by the score of their union, with byte fallback.

The `tokenizers` library merges by the rank of a pair. SentencePiece scores the merged token, and
the leftmost of equal scores wins. No order of pairs can express that: for "aaa", whether a + aa or
aa + a merges depends on the place in the text. Converting scores to pairs would also take over a
second for a vocabulary of 262,144. So this module implements the merges, and caches words.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from heapq import heappop, heappush

SPACE_MARK = "\u2581"
_WORD = re.compile(f"{SPACE_MARK}*[^{SPACE_MARK}]+|{SPACE_MARK}+")
_ACROSS_WORDS = re.compile(f"[^{SPACE_MARK}]{SPACE_MARK}")
_MAX_REMEMBERED = 1 << 16
_MAX_WORD_REMEMBERED = 64
_Pair = tuple[float, int, int, int]  # negative score, left and right index, length of the union


class SentencePieceEncoder:
    """Encodes plain text as SentencePiece BPE does.

    A byte of a character that has neither a token nor byte tokens becomes `unknown_id`, or is
    dropped if that is None.
    """

    def __init__(
        self, ids: Mapping[str, int], scores: Sequence[float], unknown_id: int | None
    ) -> None:
        self._ids, self._scores = ids, scores
        self._unknown = [] if unknown_id is None else [unknown_id]
        # If no token crosses a word boundary, no merge does: words are encoded one by one.
        self._cuts_words = not any(
            SPACE_MARK in text and _ACROSS_WORDS.search(text) for text in ids
        )
        self._remembered = lru_cache(_MAX_REMEMBERED)(self._word_ids)

    def encode(self, text: str) -> list[int]:
        """Returns the token ids of a text without special tokens; adds no leading space."""
        marked = text.replace(" ", SPACE_MARK)
        words: Iterable[str] = _WORD.findall(marked) if self._cuts_words else [marked]
        return [token_id for word in words for token_id in self._ids_of(word)]

    def _ids_of(self, word: str) -> list[int]:
        is_short = len(word) <= _MAX_WORD_REMEMBERED
        return self._remembered(word) if is_short else self._word_ids(word)

    def _word_ids(self, word: str) -> list[int]:
        return [token_id for piece in self._merge(word) for token_id in self._piece_ids(piece)]

    def _piece_ids(self, piece: str) -> list[int]:
        """Returns the id of a piece's token, or the ids of its byte tokens if it has no token."""
        if (token_id := self._ids.get(piece)) is not None:
            return [token_id]
        ids: list[int] = []
        for byte in piece.encode():
            token_id = self._ids.get(f"<0x{byte:02X}>")
            ids += self._unknown if token_id is None else [token_id]
        return ids

    def _merge(self, word: str) -> list[str]:
        """Merges the characters of a word until no two adjacent pieces form a token."""
        pieces = list(word)
        left_of, right_of = list(range(-1, len(pieces) - 1)), list(range(1, len(pieces) + 1))
        pairs: list[_Pair] = []
        for left in range(len(pieces) - 1):
            self._push(pairs, pieces, left, left + 1)
        while pairs:
            _, left, right, size = heappop(pairs)
            if not pieces[left] or not pieces[right]:
                continue
            union = pieces[left] + pieces[right]
            if len(union) != size:  # one of the two has grown in the meantime
                continue
            pieces[left], pieces[right] = union, ""
            right_of[left] = after = right_of[right]
            if after < len(pieces):
                left_of[after] = left
                self._push(pairs, pieces, left, after)
            if left_of[left] >= 0:
                self._push(pairs, pieces, left_of[left], left)
        return [piece for piece in pieces if piece]

    def _push(self, pairs: list[_Pair], pieces: list[str], left: int, right: int) -> None:
        """Adds two adjacent pieces to the heap `pairs` if their union is a token."""
        union = pieces[left] + pieces[right]
        if (token_id := self._ids.get(union)) is not None:
            heappush(pairs, (-self._scores[token_id], left, right, len(union)))
