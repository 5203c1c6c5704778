"""One layer: a mixer of tokens, then a feed-forward, each a branch of the residual stream."""

from dataclasses import dataclass

from sharpi.model.branch import Branch
from sharpi.model.feed_forward import FeedForward
from sharpi.model.mixer import Mixer
from sharpi.model.rope import Angles
from sharpi.ops.interface import Ops, X


@dataclass(frozen=True, slots=True)
class Layer:
    """The weights of one layer."""

    branch: Branch
    mixer: Mixer
    feed_forward: FeedForward

    def mix(self, ops: Ops[X], x: X, angles: Angles[X]) -> X:
        """The stream (hidden,) after the mixer."""

        def compute(h: X, residual: X | None, scale: float) -> X:
            mixed = self.mixer.mix(ops, h, angles)
            if residual is not None:
                return ops.linear_add(mixed, self.mixer.output, residual, scale)
            (projected,) = ops.linear(mixed, [self.mixer.output])
            return projected

        return self.branch.follow(ops, x, compute)

    def feed(self, ops: Ops[X], x: X, following: "Layer | None") -> X:
        """The stream (hidden,) after the feed-forward."""
        return self.feed_forward.feed(ops, x, following.feed_forward if following else None)
