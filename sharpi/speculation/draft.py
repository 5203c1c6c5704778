"""Draft and Drafter: tokens that may come next in a sequence, and the interface to draft them."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.config import DraftKind

Logits = npt.NDArray[np.float32]


class Draft(Struct, frozen=True):
    """Tokens that may come next, with the drafter's certainty of each.

    `certainty` has a level for each token, on the drafter's own scale. `Acceptance` learns how
    often tokens of a level are right.
    """

    kind: DraftKind
    tokens: tuple[int, ...]
    certainty: tuple[int, ...]


class Drafter(Protocol):
    """Drafts one sequence's next tokens."""

    @property
    def kind(self) -> DraftKind:
        """The kind of its drafts."""

    @property
    def is_free(self) -> bool:
        """True if drafting takes hardly any time, so that it can be done at every step."""

    def extend(self, tokens: Sequence[int]) -> None:
        """Adds tokens that follow in the sequence."""

    def propose(self, most: int) -> Draft | None:
        """Drafts at most `most` next tokens; returns None if it has no draft."""

    def close(self) -> None:
        """Ends the drafts for this sequence."""


# Lower ends of the levels of match lengths; longer matches are right more often.
_LEVELS = (1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 65)


def level_of_match(length: int) -> int:
    """Returns the level of a match of `length` tokens, 0 to 11."""
    level = 0
    while level + 1 < len(_LEVELS) and _LEVELS[level + 1] <= length:
        level += 1
    return level


NUM_CHANCES = 10  # levels of a model's own probability


def level_of_chance(chance: float) -> int:
    """Returns the level of a model's own probability `chance`, 0 to 1: its tenths, rounded down."""
    return int(chance * NUM_CHANCES)


def likely_tokens(
    logits: Logits, after: Callable[[int], Logits], most: int, vocab_size: int, least: float
) -> tuple[list[int], list[int]]:
    """Returns at most `most` tokens of a model's greedy continuation, and their levels.

    `logits` (vocabulary,) are those of the first token, and `after` returns those after another
    one. Ends before an id outside `vocab_size`, and before a probability below `least`.
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


# The level of each match length; the last entry is for all longer ones.
_LEVEL_OF_LENGTH = tuple(level_of_match(length) for length in range(256))
_LONGEST = 128


def levels_of_match(length: int, count: int) -> tuple[int, ...]:
    """Returns the levels of `count` tokens, at most 128, after a match of `length` tokens.

    Each right token makes the match one longer for the next token.
    """
    begin = min(length, _LONGEST)
    return _LEVEL_OF_LENGTH[begin : begin + count]
