"""The protocol of constraints on the next token, which grammars and reasoning budgets implement."""

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
