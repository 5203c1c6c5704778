"""The protocol of constraints on the next token, which grammars and reasoning budgets implement."""

from collections.abc import Iterable
from typing import Protocol

import numpy as np
import numpy.typing as npt

TokenMask = npt.NDArray[np.uint32]


class Constraint(Protocol):
    """Restricts which tokens may come next in one answer; each answer needs a new object."""

    def allowed(self) -> TokenMask | None:
        """Returns the mask of the tokens that may come next; None allows all.

        Token i is bit i % 32 of word i // 32; the mask has at least ceil(vocabulary / 32) words.
        End tokens are allowed where the answer may end. The next call may overwrite the array.
        """

    def accept(self, token: int) -> None:
        """Advances the state by the sampled token, which may be an end token."""


class FiniteConstraint(Constraint, Protocol):
    """A constraint that reports when the answer is complete."""

    @property
    def is_finished(self) -> bool:
        """True if only an end token may follow."""


def empty_mask(num_tokens: int) -> TokenMask:
    """Returns a mask that allows no token: uint32 of shape (ceil(num_tokens / 32),)."""
    return np.zeros((num_tokens + 31) // 32, np.uint32)


def mask_of(ids: Iterable[int], num_tokens: int) -> TokenMask:
    """Returns a mask that allows exactly the tokens `ids`."""
    mask = empty_mask(num_tokens)
    for token in ids:
        mask[token // 32] |= np.uint32(1 << token % 32)
    return mask


def allows(mask: TokenMask, token: int) -> bool:
    """Returns whether the token's bit is set."""
    return bool(mask[token // 32] >> np.uint32(token % 32) & np.uint32(1))


def all_but(ids: Iterable[int], num_tokens: int) -> TokenMask:
    """Returns a mask that allows all tokens except `ids`."""
    return ~mask_of(ids, num_tokens)
