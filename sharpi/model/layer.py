"""One layer: a mixer, then a feed-forward, each in a branch of the residual stream.

In Gemma 4 a layer ends with the addition of an input of its own.
"""

from msgspec import Struct

from sharpi.model.feed_forward.feed_forward import FeedForward
from sharpi.model.mixers.mixer import Mixer, SideBySide
from sharpi.model.mixers.rope import Angles
from sharpi.model.norm import Branch, Norm, load_norm, project
from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import Activation, ExpertWeights, Matrix, Ops, X


class LayerInputs(Struct, frozen=True):
    """The weights that compute the inputs of all layers (layers * width,) for a token.

    The inputs are the scaled sum of a token's row in a second embedding matrix and a normed
    projection of its row in the model's embedding matrix.
    """

    width: int
    embedding: Matrix  # (vocabulary, layers * width)
    projection: Matrix  # (layers * width, hidden)
    norm: Norm  # norm of each layer's part of the projection

    def compute(self, ops: Ops[X], x: X) -> X:
        """Computes all layers' inputs (layers * width,) from the embedded tokens x (hidden,)."""
        (projected,) = ops.linear(x, [self.projection])
        projected = ops.scale(projected, self.projection.columns**-0.5)
        normed = self.norm.apply(ops, projected, self.projection.rows)
        own = ops.embed(self.embedding, self.width**0.5)
        return ops.scale(ops.add(normed, own, 1.0), 2**-0.5)


class LayerInputGate(Struct, frozen=True):
    """Adds norm(projection(act(gate x) * input)) to the residual stream x at a layer's end."""

    gate: Matrix
    projection: Matrix
    norm: Norm
    activation: Activation

    def add(self, ops: Ops[X], x: X, own: X) -> X:
        """Returns the stream x (hidden,) plus the gated input `own` (width,) of this layer."""
        (gate,) = ops.linear(x, [self.gate])
        (out,) = ops.linear(ops.gated(gate, own, self.activation), [self.projection])
        return ops.add(x, self.norm.apply(ops, out), 1.0)


def load_layer_inputs(
    tensors: TensorSource, embedding: Matrix, num_layers: int, width: int, epsilon: float
) -> LayerInputs | None:
    """Loads the weights of the per-layer inputs; returns None if the model has none."""
    if not width:
        return None
    return LayerInputs(
        width=width,
        embedding=tensors.matrix("per_layer_token_embd", (embedding.rows, num_layers * width)),
        projection=tensors.matrix("per_layer_model_proj", (num_layers * width, embedding.columns)),
        norm=load_norm(tensors, "per_layer_proj_norm", epsilon, width),
    )


def load_layer_gate(
    tensors: TensorSource, hidden: int, width: int, epsilon: float, activation: Activation
) -> LayerInputGate | None:
    """Loads a layer's input gate; returns None if the model has no per-layer inputs."""
    if not width:
        return None
    return LayerInputGate(
        gate=tensors.matrix("inp_gate", (width, hidden)),
        projection=tensors.matrix("proj", (hidden, width)),
        norm=load_norm(tensors, "post_norm", epsilon, hidden),
        activation=activation,
    )


class Layer(Struct, frozen=True):
    """The weights of one layer; some architectures have layers without mixer or feed-forward."""

    branch: Branch | None  # of the mixer; None without one
    mixer: Mixer | SideBySide | None
    feed_forward: FeedForward | None
    input_gate: LayerInputGate | None = None  # adds the per-layer input
    is_parallel: bool = False  # the feed-forward reads the layer's input, as the mixer does
    output_scale: float = 1.0  # multiplies the stream at the layer's end

    def mix(self, ops: Ops[X], x: X, angles: Angles[X]) -> X:
        """Returns the residual stream (hidden,) after the mixer."""
        if self.mixer is None or self.branch is None:
            return x
        parts = self.mixer.parts if isinstance(self.mixer, SideBySide) else (self.mixer,)

        def compute(h: X, residual: X | None, scale: float) -> X:
            for part in parts:
                residual = project(ops, part.mix(ops, h, angles), part.output, residual, scale)
            assert residual is not None
            return residual

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
