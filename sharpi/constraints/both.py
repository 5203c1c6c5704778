"""Both combines two constraints."""

from sharpi.constraints.constraint import Constraint, TokenMask


class Both:
    """Allows the tokens that both constraints allow."""

    def __init__(self, first: Constraint, second: Constraint) -> None:
        self._first, self._second = first, second

    def allowed(self) -> TokenMask | None:
        """Returns the intersection of both masks."""
        first, second = self._first.allowed(), self._second.allowed()
        if first is None or second is None:
            return second if first is None else first
        return first & second

    def accept(self, token: int) -> None:
        """Passes the token to both constraints."""
        self._first.accept(token)
        self._second.accept(token)
