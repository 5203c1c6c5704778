"""Prefixed: certain tokens must come before a constraint begins."""

from collections.abc import Sequence

from sharpi.constraints.constraint import FiniteConstraint, TokenMask
from sharpi.constraints.mask import mask_of


class Prefixed:
    """The tokens of `prefix`, one after the other, then what `constraint` allows."""

    def __init__(
        self, prefix: Sequence[int], constraint: FiniteConstraint, num_tokens: int
    ) -> None:
        self._prefix, self._constraint = list(prefix), constraint
        self._num_tokens = num_tokens

    @property
    def is_finished(self) -> bool:
        """Whether nothing but an end token may come."""
        return not self._prefix and self._constraint.is_finished

    def allowed(self) -> TokenMask | None:
        """The prefix's next token; after it the constraint's mask."""
        if self._prefix:
            return mask_of(self._prefix[:1], self._num_tokens)
        return self._constraint.allowed()

    def accept(self, token: int) -> None:
        """Goes on by a token."""
        if self._prefix:
            self._prefix.pop(0)
        else:
            self._constraint.accept(token)
