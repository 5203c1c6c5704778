"""Reads which mixer each layer of a model has, if any, and its settings.

Modules of mixers other than softmax attention are imported only for models that need them, for a
faster start.
"""

from collections.abc import Set
from typing import TYPE_CHECKING

from msgspec import Struct

from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.model.mixers.attention_reader import AttentionReader
from sharpi.model.mixers.mixer import MixerSettings, SideBySideSettings
from sharpi.model.spec import ArchitectureSpec
from sharpi.model.tensors import TensorSource

if TYPE_CHECKING:
    from sharpi.model.mixers.latent_attention import LatentAttentionReader


class NoMixerSettings(Struct, frozen=True):
    """The settings of a layer that has no mixer, only a feed-forward."""

    kv_shape: None = None
    state_shapes: tuple[()] = ()
    rope: None = None

    def load(self, tensors: TensorSource) -> None:
        """Returns None: there is nothing to load."""


def read_mixers(
    reader: HyperparameterReader, spec: ArchitectureSpec, norm_epsilon: float, indexed: Set[int]
) -> tuple[MixerSettings, ...]:
    """Returns the settings of every layer's mixer; raises ModelFileError that names the bad key.

    `indexed` are the layers with an indexer.
    """
    attention = _attention_reader(reader, spec, norm_epsilon, indexed)
    feeds, recurrent = _feed_forward_layers(reader, spec), _recurrent_layers(reader, spec)

    def read(layer: int) -> MixerSettings:
        if feeds[layer]:
            return NoMixerSettings()
        if spec.mixes_side_by_side:
            both = attention.layer(layer), _recurrent(reader, spec, norm_epsilon, layer)
            return SideBySideSettings(*both, rope=both[0].rope)
        if recurrent[layer]:
            return _recurrent(reader, spec, norm_epsilon, layer)
        return attention.layer(layer)

    return tuple(map(read, range(reader.num_layers)))


def read_head_mixer(
    reader: HyperparameterReader,
    spec: ArchitectureSpec,
    norm_epsilon: float,
    layer: int,
    indexed: Set[int],
) -> MixerSettings:
    """Returns the attention settings of the layer of an MTP head, which takes no other's choice.

    `reader` must have been made with `counts_heads`.
    """
    return _attention_reader(reader, spec, norm_epsilon, indexed & {layer}).layer(layer)


def _attention_reader(
    reader: HyperparameterReader, spec: ArchitectureSpec, norm_epsilon: float, indexed: Set[int]
) -> "AttentionReader | LatentAttentionReader":
    if spec.attention != "latent":
        return AttentionReader(reader, spec, norm_epsilon, indexed)
    from sharpi.model.mixers.latent_attention import LatentAttentionReader

    return LatentAttentionReader(reader, spec, norm_epsilon, indexed)


def _feed_forward_layers(reader: HyperparameterReader, spec: ArchitectureSpec) -> list[bool]:
    """Returns for each layer whether it has a feed-forward in place of a mixer."""
    if not spec.has_one_branch:
        return [False] * reader.num_layers
    return [width > 0 for width in reader.per_layer("feed_forward_length", minimum=0)]


def _recurrent(
    reader: HyperparameterReader, spec: ArchitectureSpec, norm_epsilon: float, layer: int
) -> MixerSettings:
    if spec.recurrent == "short_convolution":
        from sharpi.model.mixers.recurrent import read_short_convolution

        return read_short_convolution(reader, layer)
    if spec.recurrent == "kimi_delta":
        from sharpi.model.mixers.kimi_delta import read_kimi_delta

        return read_kimi_delta(reader, norm_epsilon, layer)
    if spec.recurrent == "mamba2":
        from sharpi.model.mixers.recurrent import read_mamba2

        return read_mamba2(reader, norm_epsilon, layer)
    from sharpi.model.mixers.recurrent import read_delta_net

    return read_delta_net(reader, spec, norm_epsilon, layer)


def _recurrent_layers(reader: HyperparameterReader, spec: ArchitectureSpec) -> list[bool]:
    """Returns for each layer whether it is recurrent.

    The file may have flags for that. Otherwise, if the architecture has a period, all layers but
    the last one of each period are recurrent. Without a period, layers with 0 KV heads are.
    """
    if spec.recurrent == "none":
        return [False] * reader.num_layers
    if reader.has("attention.recurrent_layers"):
        return reader.flags("attention.recurrent_layers")
    if spec.attention_period:
        period = reader.integer("full_attention_interval", spec.attention_period)
        return [(layer + 1) % max(1, period) != 0 for layer in range(reader.num_layers)]
    return [heads == 0 for heads in reader.per_layer("attention.head_count_kv", minimum=0)]
