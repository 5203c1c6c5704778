"""Which mixer each layer of a model has."""

from sharpi.model.attention_reader import AttentionReader
from sharpi.model.delta_net import read_delta_net
from sharpi.model.keys import Keys
from sharpi.model.mamba2 import read_mamba2
from sharpi.model.mixer import MixerSettings
from sharpi.model.short_convolution import read_short_convolution
from sharpi.model.spec import ArchitectureSpec


def read_mixers(
    keys: Keys, spec: ArchitectureSpec, norm_epsilon: float
) -> tuple[MixerSettings, ...]:
    """The settings of every layer's mixer; raises ModelFileError naming the key at fault."""
    attention = AttentionReader(keys, spec, norm_epsilon)
    return tuple(
        _recurrent(keys, spec, norm_epsilon, layer) if is_recurrent else attention.layer(layer)
        for layer, is_recurrent in enumerate(_recurrent_layers(keys, spec))
    )


def _recurrent(
    keys: Keys, spec: ArchitectureSpec, norm_epsilon: float, layer: int
) -> MixerSettings:
    if spec.recurrent == "short_convolution":
        return read_short_convolution(keys, layer)
    if spec.recurrent == "mamba2":
        return read_mamba2(keys, norm_epsilon, layer)
    return read_delta_net(keys, spec, norm_epsilon, layer)


def _recurrent_layers(keys: Keys, spec: ArchitectureSpec) -> list[bool]:
    """Layers without attention: the file's flags, else all but the last of a period, else those
    without KV heads."""
    if spec.recurrent == "none":
        return [False] * keys.num_layers
    if keys.has("attention.recurrent_layers"):
        return keys.flags("attention.recurrent_layers")
    if spec.attention_period:
        period = keys.integer("full_attention_interval", spec.attention_period)
        return [(layer + 1) % max(1, period) != 0 for layer in range(keys.num_layers)]
    return [heads == 0 for heads in keys.per_layer("attention.head_count_kv", minimum=0)]
