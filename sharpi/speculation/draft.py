"""Draft and Drafter: what the next tokens of a sequence might be, and who says so."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from sharpi.config import DraftKind


class Draft(Struct, frozen=True):
    """The tokens that may come next, each with the chance that it is right if those before are.

    `certainty` is what the drafter knows of each token: its level in the drafter's own scale, by
    which `Acceptance` learns how often such tokens are right.
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
        """True if a draft takes no time to speak of, so that one may be made at every step."""

    def extend(self, tokens: Sequence[int]) -> None:
        """Adds tokens that follow in the sequence."""

    def propose(self, most: int) -> Draft | None:
        """Drafts at most `most` next tokens; None where it has no idea."""

    def close(self) -> None:
        """Ends the drafts for this sequence."""


# Longer matches are right more often: the lower ends of the levels of their lengths.
_LEVELS = (1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 65)


def level_of_match(length: int) -> int:
    """Returns the level of a match of `length` tokens, 0 to 11."""
    level = 0
    while level + 1 < len(_LEVELS) and _LEVELS[level + 1] <= length:
        level += 1
    return level


def level_of_chance(chance: float) -> int:
    """Returns the level of a model's own probability, 0 to 1: its tenths."""
    return int(chance * 10)


# The level of each length, and of all that are longer.
_LEVEL_OF_LENGTH = tuple(level_of_match(length) for length in range(256))
_LONGEST = 128


def levels_of_match(length: int, count: int) -> tuple[int, ...]:
    """Returns the levels of `count` tokens after a match: each one that is right makes it longer.

    For at most 128 tokens.
    """
    begin = min(length, _LONGEST)
    return _LEVEL_OF_LENGTH[begin : begin + count]
