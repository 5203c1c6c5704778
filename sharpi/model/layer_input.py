"""Per-layer inputs: each layer ends with the addition of a separate input (Gemma 4)."""

from msgspec import Struct

from sharpi.model.norm import Norm, load_norm
from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import Activation, Matrix, Ops, X


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
        """Returns the residual stream x (hidden,) plus the gated input.

        `own` (width,) is the per-layer input of this layer.
        """
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
