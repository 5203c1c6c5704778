"""PredictHead: a head for multi-token prediction (MTP), which drafts the token after the next one.

It is the MTP module of DeepSeek-V3 (arXiv 2412.19437, section 2.2). In a GGUF file it is the layer
after the model's last one, with `nextn` tensors in addition to those of other layers.
"""

import numpy as np
from msgspec import Struct

from sharpi.model.config import ModelConfig
from sharpi.model.layer import Layer
from sharpi.model.mixers.rope import Angles
from sharpi.model.norm import Norm, load_norm
from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import FloatArray, Matrix, Ops, X


class PredictHead(Struct, frozen=True):
    """The weights of the head; weights that its file lacks are those of the model."""

    embedding: Matrix
    embedding_norm: Norm
    hidden_norm: Norm
    projection: Matrix  # (hidden, 2 * hidden): the embedding's columns come first
    layer: Layer
    norm: Norm
    output: Matrix

    def step(
        self, ops: Ops[X], config: ModelConfig, hidden: X, divisors: FloatArray | None
    ) -> tuple[X, X]:
        """Returns hidden states (hidden,) and logits (vocabulary,) of tokens that need logits.

        `hidden` (hidden,) is the model's hidden state of each token, after the output norm. For a
        further draft, it is the hidden state that this function returned for the draft before. The
        step's token ids are those of the tokens that follow the tokens of `hidden`.
        """
        token = ops.embed(self.embedding, config.embedding_scale)
        token = self.embedding_norm.apply(ops, token)
        both = ops.join(token, self.hidden_norm.apply(ops, hidden))
        (x,) = ops.linear(both, [self.projection])
        x = ops.select_outputs(self.layer.mix(ops, x, Angles(ops, divisors)))
        x = self.norm.apply(ops, self.layer.feed(ops, x, None))
        (logits,) = ops.linear(x, [self.output])
        return x, config.final_logits(ops, logits)


def load_head(
    tensors: TensorSource,
    layer: Layer,
    embedding: Matrix,
    output_norm: Norm,
    output: Matrix,
    layer_norm_epsilon: float = 0.0,
) -> PredictHead:
    """Loads the head from the `nextn` tensors of `tensors`, which are those of its layer.

    If `layer_norm_epsilon` is not 0, the head's last norm is a layer norm with this epsilon. Raises
    ModelFileError for a missing or misshapen tensor.
    """
    hidden, epsilon = embedding.columns, output_norm.epsilon
    shape = (embedding.rows, hidden)
    norm = output_norm
    if tensors.has("nextn.shared_head_norm.weight"):
        norm = load_norm(tensors, "nextn.shared_head_norm", epsilon, hidden)
        if layer_norm_epsilon:
            norm = Norm(norm.weight, layer_norm_epsilon, np.zeros(hidden, np.float32))
    return PredictHead(
        embedding=tensors.optional_matrix("nextn.embed_tokens", shape) or embedding,
        embedding_norm=load_norm(tensors, "nextn.enorm", epsilon, hidden),
        hidden_norm=load_norm(tensors, "nextn.hnorm", epsilon, hidden),
        projection=tensors.matrix("nextn.eh_proj", (hidden, 2 * hidden)),
        layer=layer,
        norm=norm,
        output=tensors.optional_matrix("nextn.shared_head_head", shape) or output,
    )
