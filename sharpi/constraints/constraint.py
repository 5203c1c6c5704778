"""What may come next in an answer: the protocol that grammars and budgets implement."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

TokenMask = npt.NDArray[np.uint32]


class Constraint(Protocol):
    """Asked before every choice of one answer and told of it; belongs to that answer alone."""

    def allowed(self) -> TokenMask | None:
        """Which tokens may come: bit i % 32 of word i // 32 is token i's; None allows all.

        Words (at least ceil(vocabulary / 32),). Where the answer may end, its end tokens may come.
        The array may be overwritten by the next call.
        """

    def accept(self, token: int) -> None:
        """Takes note of a chosen token, the end token included."""


class FiniteConstraint(Constraint, Protocol):
    """A constraint that says when it has come to its end."""

    @property
    def is_finished(self) -> bool:
        """Whether nothing but an end token may come."""
