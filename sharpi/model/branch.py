"""Branch: a norm, a computation on its result, and the addition to the residual stream."""

from collections.abc import Callable

from msgspec import Struct

from sharpi.model.norm import Norm
from sharpi.ops.interface import Ops, X


class Branch(Struct, frozen=True):
    """Computes x + scale * post_norm(computation(norm(x))) of the residual stream x."""

    norm: Norm
    post_norm: Norm | None  # None in architectures without one
    scale: float

    def follow(
        self,
        ops: Ops[X],
        x: X,
        compute: Callable[[X, X | None, float], X],
        source: X | None = None,
    ) -> X:
        """Returns the residual stream (hidden,) after the branch.

        If `source` (hidden,) is not None, the norm reads it instead of x.

        `compute(h, residual, scale)` returns residual + scale * f(h) for the normed input h, or
        f(h) without a residual.
        """
        h = self.norm.apply(ops, x if source is None else source)
        if self.post_norm is None:
            return compute(h, x, self.scale)
        return ops.add(x, self.post_norm.apply(ops, compute(h, None, 1.0)), self.scale)
