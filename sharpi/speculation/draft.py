"""Draft and Drafter: tokens that may come next in a sequence, and the interface to propose them."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.settings import DraftKind

Logits = npt.NDArray[np.float32]


class Draft(Struct, frozen=True):
    """Tokens that may come next, with a level of certainty for each, on a scale of the kind."""

    kind: DraftKind
    tokens: tuple[int, ...]
    certainty: tuple[int, ...]


class Drafter(Protocol):
    """The interface of a drafter, which proposes the next tokens of one sequence."""

    @property
    def kind(self) -> DraftKind:
        """The kind of this drafter's drafts."""

    @property
    def is_free(self) -> bool:
        """True if drafting takes hardly any time, so that it can be done at every step."""

    def extend(self, tokens: Sequence[int]) -> None:
        """Passes the next tokens of the sequence to the drafter."""

    def propose(self, most: int) -> Draft | None:
        """Returns a draft of at most `most` next tokens, or None if it has none."""

    def close(self) -> None:
        """Frees the memory of the drafter at the end of the sequence."""


NUM_CHANCES = 10  # the number of levels of probabilities that a model gives


def likely_draft(
    kind: DraftKind, logits: Logits, after: Callable[[int], Logits], most: int, vocab_size: int,
    least: float,
) -> Draft | None:  # fmt: skip
    """Returns at most `most` tokens of a model's greedy continuation, with tenths of probability.

    `logits` (vocabulary,) are those of the first token; `after(token)` returns those of the next.
    Stops before an id outside `vocab_size`, and before a probability below `least`.
    """
    tokens, levels = list[int](), list[int]()
    while len(tokens) < most:
        logits = after(tokens[-1]) if tokens else logits
        token = int(np.argmax(logits))
        chance = float(1 / np.exp(logits - logits[token]).sum())
        if token >= vocab_size or not chance >= least:
            break
        tokens.append(token)
        levels.append(int(chance * NUM_CHANCES))
    return Draft(kind, tuple(tokens), tuple(levels)) if tokens else None


# The least match length of each level; drafts after longer matches are accepted more often.
_LEVELS = (1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 65)
# The level of certainty, 0 to 11, for each match length.
_LEVEL_OF_LENGTH = tuple(max(0, bisect_right(_LEVELS, length) - 1) for length in range(256))
_LONGEST = 128


def levels_of_match(length: int, count: int) -> tuple[int, ...]:
    """Returns the levels of `count` tokens, at most 128, after a match of `length`, which grows."""
    begin = min(length, _LONGEST)
    return _LEVEL_OF_LENGTH[begin : begin + count]
