"""Assistant: Gemma 4's drafter, a small model that reads the main model's keys and values.

Its layers compute queries only. Each layer reads the keys and values of the main model's last layer
of the same kind, with or without a window (transformers: `gemma4_assistant`). The inputs are the
embedding of the newest token and the main model's hidden state at the token before it. All drafts
have the position of the newest token, and attend to the positions before that.
"""

from msgspec import Struct
from msgspec.structs import replace

from sharpi.model.assistant_settings import AssistantSettings, assistant_prefix
from sharpi.model.config import ModelConfig
from sharpi.model.feed_forward.feed_forward_settings import FeedForwardSettings
from sharpi.model.layer import Layer
from sharpi.model.mixers.rope import Angles
from sharpi.model.norm import Branch, Norm, load_norm, optional_norm
from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import FloatArray, Matrix, Ops, X


class Assistant(Struct, frozen=True):
    """The weights of the assistant; the embedding of tokens is the main model's.

    In the shapes, `own hidden` is the hidden size of the assistant.
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
