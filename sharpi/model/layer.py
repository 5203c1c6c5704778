"""One layer: a mixer, then a feed-forward, each in a branch of the residual stream."""

from msgspec import Struct

from sharpi.model.branch import Branch
from sharpi.model.feed_forward.feed_forward import FeedForward
from sharpi.model.layer_input import LayerInputGate
from sharpi.model.mixers.mixer import Mixer
from sharpi.model.mixers.rope import Angles
from sharpi.ops.interface import ExpertWeights, Ops, X


class Layer(Struct, frozen=True):
    """The weights of one layer; some architectures have layers without mixer or feed-forward."""

    branch: Branch | None  # of the mixer; None without one
    mixer: Mixer | None
    feed_forward: FeedForward | None
    input_gate: LayerInputGate | None = None  # adds the per-layer input
    is_parallel: bool = False  # the feed-forward reads the layer's input, as the mixer does
    output_scale: float = 1.0  # multiplies the stream at the layer's end

    def mix(self, ops: Ops[X], x: X, angles: Angles[X]) -> X:
        """Returns the residual stream (hidden,) after the mixer."""
        mixer = self.mixer
        if mixer is None or self.branch is None:
            return x

        def compute(h: X, residual: X | None, scale: float) -> X:
            mixed = mixer.mix(ops, h, angles)
            if residual is not None:
                return ops.linear_add(mixed, mixer.output, residual, scale)
            (projected,) = ops.linear(mixed, [mixer.output])
            return projected

        return self.branch.follow(ops, x, compute)

    def feed(self, ops: Ops[X], x: X, following: "Layer | None", source: X | None = None) -> X:
        """Returns the residual stream (hidden,) after the feed-forward.

        `source` (hidden,) is the input of the layer if the layer is parallel, otherwise None.
        `following` is the next layer with a feed-forward, or None.
        """
        if self.feed_forward is None:
            return x
        next_one = following.feed_forward if following else None
        return self.feed_forward.feed(ops, x, next_one, source)

    def finish(self, ops: Ops[X], x: X, own: X | None) -> X:
        """Returns the residual stream (hidden,) at the end of the layer.

        `own` (width,) is the per-layer input, None if the model has none.
        """
        if self.input_gate is not None and own is not None:
            x = self.input_gate.add(ops, x, own)
        return x if self.output_scale == 1.0 else ops.scale(x, self.output_scale)

    @property
    def experts(self) -> ExpertWeights | None:
        """The weights of the routed experts; None in a layer without them."""
        return None if self.feed_forward is None else self.feed_forward.experts
