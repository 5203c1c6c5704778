"""What may come next in an answer, as the engine sees it: the protocol is that of `constraints`."""

from sharpi.constraints.constraint import Constraint, TokenMask

__all__ = ["Constraint", "TokenMask"]
