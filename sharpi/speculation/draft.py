"""Draft and Drafter: tokens that may come next in a sequence, and the interface to propose them."""

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


# The least match length of each level; drafts after longer matches are accepted more often.
_LEVELS = (1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 65)


def level_of_match(length: int) -> int:
    """Returns the level of certainty, 0 to 11, of a draft after a match of `length` tokens."""
    level = 0
    while level + 1 < len(_LEVELS) and _LEVELS[level + 1] <= length:
        level += 1
    return level


NUM_CHANCES = 10  # the number of levels of probabilities that a model gives


def level_of_chance(chance: float) -> int:
    """Returns the level of a token with the probability `chance`: the number of full tenths."""
    return int(chance * NUM_CHANCES)


def likely_tokens(
    logits: Logits, after: Callable[[int], Logits], most: int, vocab_size: int, least: float
) -> tuple[list[int], list[int]]:
    """Returns at most `most` tokens of a model's greedy continuation, and their levels.

    `logits` (vocabulary,) are those of the first token; `after(token)` returns those of the next.
    Stops before an id outside `vocab_size`, and before a probability below `least`.
    """
    tokens, levels = list[int](), list[int]()
    while True:
        token = int(np.argmax(logits))
        chance = float(1 / np.exp(logits - logits[token]).sum())
        if token >= vocab_size or not chance >= least:
            return tokens, levels
        tokens.append(token)
        levels.append(level_of_chance(chance))
        if len(tokens) == most:
            return tokens, levels
        logits = after(token)


# The level of certainty for each match length, up to 255.
_LEVEL_OF_LENGTH = tuple(level_of_match(length) for length in range(256))
_LONGEST = 128


def levels_of_match(length: int, count: int) -> tuple[int, ...]:
    """Returns the levels of `count` tokens, at most 128, after a match of `length`, which grows."""
    begin = min(length, _LONGEST)
    return _LEVEL_OF_LENGTH[begin : begin + count]
