"""Which mixer each layer of a model has."""

from sharpi.model.attention_reader import AttentionReader
from sharpi.model.keys import Keys
from sharpi.model.mixer import MixerSettings
from sharpi.model.spec import ArchitectureSpec


def read_mixers(
    keys: Keys, spec: ArchitectureSpec, norm_epsilon: float
) -> tuple[MixerSettings, ...]:
    """The settings of every layer's mixer; raises ModelFileError naming the key at fault."""
    attention = AttentionReader(keys, spec, norm_epsilon)
    return tuple(attention.layer(i) for i in range(keys.num_layers))
