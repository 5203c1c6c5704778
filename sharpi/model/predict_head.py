"""The heads that draft: PredictHead for multi-token prediction (MTP), and Gemma 4's Assistant.

PredictHead is the MTP module of DeepSeek-V3 (arXiv 2412.19437, section 2.2). In a GGUF file it is
the layer after the model's last one, with `nextn` tensors in addition to those of other layers.
"""

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from sharpi.model.config import AssistantSettings, ModelConfig, assistant_prefix
from sharpi.model.feed_forward.feed_forward_settings import FeedForwardSettings
from sharpi.model.layer import Layer
from sharpi.model.mixers.rope import Angles
from sharpi.model.norm import Branch, Norm, load_norm, optional_norm
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


class Assistant(Struct, frozen=True):
    """Gemma 4's drafter, a small model that reads the main model's keys and values.

    Its layers compute queries only. Each layer reads the keys and values of the main model's last
    layer of the same kind, with or without a window (transformers: `gemma4_assistant`). The inputs
    are the embedding of the newest token, which is the main model's, and the main model's hidden
    state at the token before it. All drafts have the position of the newest token, and attend to
    the positions before that. In the shapes, `own hidden` is the hidden size of the assistant.
    """

    embedding: Matrix
    before: Matrix  # (own hidden, 2 * hidden): the embedding's columns come first
    layers: tuple[Layer, ...]
    norm: Norm
    output: Matrix  # (vocabulary, own hidden)
    after: Matrix  # (hidden, own hidden)

    def step(
        self, ops: Ops[X], config: ModelConfig, hidden: X, divisors: FloatArray | None
    ) -> tuple[X, X]:
        """Returns hidden states (hidden,) and logits (vocabulary,) of tokens that need logits.

        `hidden` (hidden,) is the main model's hidden state at the token before each token, after
        the output norm. For a further draft, it is the hidden state that this function returned.
        `ops` must let a token attend only to the positions before its own.
        """
        token = ops.embed(self.embedding, config.embedding_scale)
        (x,) = ops.linear(ops.join(token, hidden), [self.before])
        angles = Angles(ops, divisors)
        for layer in self.layers:
            x = layer.mix(ops, x, angles)
            x = layer.finish(ops, layer.feed(ops, x, None), None)
        x = self.norm.apply(ops, ops.select_outputs(x))
        following, logits = ops.linear(x, [self.after, self.output])
        return following, logits


def load_assistant(
    source: TensorSource, config: ModelConfig, settings: AssistantSettings, embedding: Matrix
) -> Assistant:
    """Loads the assistant's tensors from the joined file of model and assistant.

    `config` and `embedding` are those of the main model. Raises ModelFileError for a missing or
    misshapen tensor.
    """
    prefix = assistant_prefix(config.num_layers)
    tensors = replace(source, prefix=prefix)
    own, hidden = settings.hidden_size, config.hidden_size
    if tensors.has("rope_freqs.weight"):
        # A copy in the assistant's file; the model's divisors are used.
        tensors.tensor("rope_freqs.weight")
    feed_forward = replace(config.feed_forward, hidden_size=own, norm_epsilon=settings.norm_epsilon)
    return Assistant(
        embedding=embedding,
        before=tensors.matrix("nextn.pre_projection", (own, 2 * hidden)),
        layers=tuple(
            _layer(replace(source, prefix=f"{prefix}blk.{i}."), settings, feed_forward, i)
            for i in range(len(settings.mixers))
        ),
        norm=load_norm(tensors, "output_norm", settings.norm_epsilon, own),
        output=tensors.matrix("token_embd", (embedding.rows, own)),
        after=tensors.matrix("nextn.post_projection", (hidden, own)),
    )


def _layer(
    tensors: TensorSource,
    settings: AssistantSettings,
    feed_forward: FeedForwardSettings,
    index: int,
) -> Layer:
    size, epsilon = settings.hidden_size, settings.norm_epsilon
    scale = tensors.optional_vector("layer_output_scale.weight", 1)
    return Layer(
        branch=Branch(
            norm=load_norm(tensors, "attn_norm", epsilon, size),
            post_norm=optional_norm(tensors, "post_attention_norm", epsilon, size),
            scale=feed_forward.residual_scale,
        ),
        mixer=settings.mixers[index].load(tensors),
        feed_forward=feed_forward.load(tensors, index),
        output_scale=1.0 if scale is None else float(scale[0]),
    )
