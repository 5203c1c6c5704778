"""Loads the model's tensors by name, checks their shapes, and groups them by layer.

Tensors of the file that are not used are described in one line per kind.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from sharpi.gguf.header import layer_of
from sharpi.gguf.reader import GgufFile
from sharpi.model.config import ModelConfig
from sharpi.model.layer import Layer, LayerInputs, load_layer_gate, load_layer_inputs
from sharpi.model.mixers.mixer import MixerSettings
from sharpi.model.norm import Norm, load_norm
from sharpi.model.predict_head import Assistant, PredictHead, load_assistant, load_head
from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import FloatArray, Matrix


class ModelWeights(Struct, frozen=True):
    """The weights of a model, grouped by layer and part."""

    embedding: Matrix
    embedding_norm: Norm | None
    layers: tuple[Layer, ...]
    output_norm: Norm
    output: Matrix
    rope_divisors: FloatArray | None
    layer_inputs: LayerInputs | None
    head: PredictHead | Assistant | None  # the head for multi-token prediction
    unused: tuple[str, ...]  # names of tensors in the file that the model does not use


def load_weights(file: GgufFile, config: ModelConfig) -> ModelWeights:
    """Returns the file's tensors, grouped; raises ModelFileError for missing or misshapen ones."""
    source = TensorSource(file, config.spec.tensors)
    hidden = config.hidden_size
    embedding = source.matrix("token_embd", (None, hidden))
    tied = not source.has("output.weight")
    output_norm = load_norm(
        source,
        "output_norm",
        config.norm_epsilon,
        hidden,
        is_layer_norm=config.feed_forward.has_layer_norm,
    )
    output = embedding if tied else source.matrix("output", (embedding.rows, hidden))
    head: PredictHead | Assistant | None = None
    if config.assistant is not None:
        head = load_assistant(source, config, config.assistant, embedding)
    elif config.head_mixer is not None:
        tensors = source.layer(config.num_layers)
        layer = _head_layer(tensors, config, config.head_mixer)
        head = load_head(tensors, layer, embedding, output_norm, output, config.head_norm_epsilon)
    return ModelWeights(
        embedding=embedding,
        embedding_norm=(
            Norm(np.ones(hidden, np.float32), config.norm_epsilon)
            if config.spec.norms_embedding
            else None
        ),
        layers=tuple(
            _layer(source.layer(i), config, config.mixers[i], i) for i in range(config.num_layers)
        ),
        output_norm=output_norm,
        output=output,
        rope_divisors=_divisors(source, config),
        layer_inputs=load_layer_inputs(
            source, embedding, config.num_layers, config.layer_input_width, config.norm_epsilon
        ),
        head=head,
        unused=source.unused(),
    )


def _layer(
    tensors: TensorSource, config: ModelConfig, settings: MixerSettings, index: int
) -> Layer:
    mixer = settings.load(tensors)
    if mixer is None:
        return Layer(None, None, config.feed_forward.load(tensors, index))
    size, epsilon = config.hidden_size, config.norm_epsilon
    branch = config.feed_forward.branch(tensors, "attn_norm", "post_attention_norm")
    if config.spec.has_one_branch:
        return Layer(branch, mixer, None)
    feed_forward = config.feed_forward
    scale = tensors.optional_vector("layer_output_scale.weight", 1)
    gate = load_layer_gate(
        tensors, size, config.layer_input_width, epsilon, feed_forward.activation
    )
    return Layer(
        branch=branch,
        mixer=mixer,
        feed_forward=feed_forward.load(tensors, index),
        input_gate=gate,
        is_parallel=config.spec.is_parallel,
        output_scale=1.0 if scale is None else float(scale[0]),
    )


def _head_layer(tensors: TensorSource, config: ModelConfig, settings: MixerSettings) -> Layer:
    """Loads the MTP head's layer, which has both a mixer and a feed-forward in every model."""
    if not config.spec.has_one_branch:
        return _layer(tensors, config, settings, config.num_layers)
    both = replace(
        config,
        spec=replace(config.spec, has_one_branch=False),
        feed_forward=replace(config.feed_forward, norm="post_attention_norm"),
    )
    layer = _layer(tensors, both, settings, config.num_layers)
    assert layer.branch is not None
    return replace(layer, branch=replace(layer.branch, post_norm=None))


def _divisors(source: TensorSource, config: ModelConfig) -> FloatArray | None:
    """Returns the rope's divisors, of long contexts where the file has them; None without."""
    ropes = {mixer.rope for mixer in config.mixers if mixer.rope}
    sizes = {rope.dims // 2 for rope in ropes if rope.is_divided}
    short = source.optional_vector("rope_factors_short.weight", *sizes)
    long = source.optional_vector("rope_factors_long.weight", *sizes)
    if any(rope.scaling.kind == "divided" for rope in ropes):
        return long if config.has_long_context else short
    if config.spec.whole_layers_rotate_half:
        divisors = source.optional_vector("rope_freqs.weight", *(2 * n for n in sizes))
        # The second half is padding in files of some models.
        return None if divisors is None else divisors[: len(divisors) // 2]
    return source.optional_vector("rope_freqs.weight", *sizes)


_PROJECTIONS = ("v.", "a.", "mm.", "resampler.")
_SHOWN = 4


def notes_on_extra(names: Sequence[str], num_layers: int) -> tuple[str, ...]:
    """Returns a line for each kind of unused tensors among `names`; unknown ones are named."""
    predicting = [name for name in names if _predicts_further(name, num_layers)]
    projecting = [name for name in names if name.startswith(_PROJECTIONS)]
    unknown = [name for name in names if name not in {*predicting, *projecting}]
    notes = []
    if predicting:
        notes.append(f"multi-token prediction (MTP), not used: {_count(predicting)}")
    if projecting:
        notes.append(f"images or audio, not used: {_count(projecting)}")
    if unknown:
        shown = ", ".join(unknown[:_SHOWN]) + (", ..." if len(unknown) > _SHOWN else "")
        notes.append(f"unknown to this architecture, not used: {_count(unknown)}, {shown}")
    return tuple(notes)


def is_extra(name: str, num_layers: int) -> bool:
    """Returns True for tensors that text never needs: those of MTP layers, images and audio."""
    return _predicts_further(name, num_layers) or name.startswith(_PROJECTIONS)


def _predicts_further(name: str, num_layers: int) -> bool:
    layer = layer_of(name)
    is_behind = layer is not None and layer >= num_layers
    return is_behind or ".nextn." in name or name.startswith("mtp.")


def _count(names: Sequence[str]) -> str:
    return "1 tensor" if len(names) == 1 else f"{len(names)} tensors"
