"""Reads the settings of Gemma 4's assistant, a small drafter with its own file."""

from msgspec import Struct
from msgspec.structs import replace

from sharpi.gguf.metadata import Metadata
from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.model.mixers.attention import AttentionSettings
from sharpi.model.mixers.attention_reader import read_windows
from sharpi.model.mixers.mixer import MixerSettings
from sharpi.model.spec import ArchitectureSpec

ASSISTANT = "gemma4-assistant"


class AssistantSettings(Struct, frozen=True):
    """The settings of an assistant; its layers read the main model's keys and values."""

    hidden_size: int
    norm_epsilon: float
    mixers: tuple[AttentionSettings, ...]


def assistant_prefix(num_layers: int) -> str:
    """Returns the prefix of the assistant's tensor names in a file joined with the main model's.

    `num_layers` is the number of layers of the main model.
    """
    return f"blk.{num_layers}.assistant."


def read_assistant(
    metadata: Metadata, spec: ArchitectureSpec, mixers: tuple[MixerSettings, ...]
) -> AssistantSettings:
    """Reads the settings from the assistant's metadata; `mixers` are the main model's.

    Raises ModelFileError if a layer's heads do not fit the main model's keys.
    """
    reader = HyperparameterReader(metadata, ASSISTANT, counts_heads=True)
    heads = reader.per_layer("attention.head_count")
    windows = read_windows(reader, spec)
    epsilon = reader.positive("attention.layer_norm_rms_epsilon")
    return AssistantSettings(
        hidden_size=reader.hidden_size,
        norm_epsilon=epsilon,
        mixers=tuple(
            replace(
                _read_from(reader, mixers, layer, heads[layer], has_window=windows[layer] > 0),
                hidden_size=reader.hidden_size,
                norm_epsilon=epsilon,
            )
            for layer in range(reader.num_layers)
        ),
    )


def _read_from(
    reader: HyperparameterReader,
    mixers: tuple[MixerSettings, ...],
    layer: int,
    num_heads: int,
    *,
    has_window: bool,
) -> AttentionSettings:
    """Returns the settings of a layer that reads the keys and values of the main model.

    They are those of the main model's last attention layer with or without a window, but with
    `num_heads` query heads.
    """
    alike = [
        mixer
        for mixer in mixers
        if isinstance(mixer, AttentionSettings) and (mixer.shape.window > 0) == has_window
    ]
    if not alike:
        raise reader.fault(f"layer {layer} needs keys {'with' if has_window else 'without'} window")
    shape = alike[-1].shape
    key = "attention.key_length_swa" if has_window else "attention.key_length"
    if reader.integer(key, shape.key_dim) != shape.key_dim or num_heads % shape.num_kv_heads:
        raise reader.fault(
            f"layer {layer} has {num_heads} heads of {reader.integer(key, shape.key_dim)}, which do"
            f" not fit the model's {shape.num_kv_heads} KV heads of {shape.key_dim}"
        )
    # Transformers' mask has both ends of the window.
    window = shape.window + 1 if shape.window else 0
    shape = replace(shape, num_heads=num_heads, window=window)
    return replace(alike[-1], shape=shape, kv="earlier layer")
