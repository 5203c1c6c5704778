"""ModelConfig: the hyperparameters of a model, from its file and the architecture's spec.

Some sizes (vocabulary, widths of experts) are read from the shapes of the weights instead. The
settings of each part of a layer are read by the module of that part.
"""

import math

from msgspec import Struct
from msgspec.structs import replace

from sharpi.errors import UnsupportedModelError
from sharpi.gguf.cursor import printable
from sharpi.gguf.file_kind import require_model
from sharpi.gguf.header import layer_of
from sharpi.gguf.metadata import Metadata
from sharpi.gguf.reader import GgufFile
from sharpi.model.feed_forward.feed_forward_settings import (
    SCORE_CORRECTIONS,
    FeedForwardSettings,
    read_activations,
    read_router,
    read_xielu,
)
from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.model.mixers.attention import AttentionSettings
from sharpi.model.mixers.attention_reader import read_windows
from sharpi.model.mixers.mixer import MixerSettings
from sharpi.model.mixers.mixers import read_head_mixer, read_mixers
from sharpi.model.spec import ArchitectureSpec, load_spec
from sharpi.ops.attention_shape import AttentionShape
from sharpi.ops.interface import Ops, Scoring, Unary, X
from sharpi.ops.recurrent import RecurrentShape

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


_INDEX_NORM = ".indexer.k_norm.weight"
_RMS_EPSILON = "attention.layer_norm_rms_epsilon"


class ModelConfig(Struct, frozen=True):
    """A model's hyperparameters; names are like Hugging Face's, with `num_` for numbers."""

    spec: ArchitectureSpec
    architecture: str
    num_layers: int
    num_predict_layers: int  # further layers in the file, for multi-token prediction (MTP)
    hidden_size: int
    context_length: int
    norm_epsilon: float
    mixers: tuple[MixerSettings, ...]
    feed_forward: FeedForwardSettings
    embedding_scale: float
    logit_scale: float
    final_soft_cap: float
    layer_input_width: int = 0  # width of the per-layer inputs, 0 for none
    has_long_context: bool = False  # the KV cache is larger than the rope's original context
    head_mixer: MixerSettings | None = None  # of the MTP head, if one is used
    head_norm_epsilon: float = 0.0  # of the layer norm at the head's end; 0 if that is an RMS norm
    # Gemma 4's assistant, if it is the head; `head_mixer` is then its last layer's.
    assistant: AssistantSettings | None = None

    def for_context(self, num_positions: int) -> "ModelConfig":
        """Returns the configuration for a KV cache of `num_positions` positions.

        It decides whether the rope uses its settings for long contexts.
        """
        originals = [m.rope.scaling.original_context for m in self.mixers if m.rope]
        return replace(self, has_long_context=num_positions > max(originals, default=0))

    @property
    def attention(self) -> tuple[AttentionShape, ...]:
        """The attention shapes of all layers that store keys and values, in order of layers.

        The last one is that of the MTP head, if the model has one that stores keys.
        """
        mixers = (*self.mixers, *filter(None, [self.head_mixer]))
        return tuple(mixer.kv_shape for mixer in mixers if mixer.kv_shape is not None)

    @property
    def has_head(self) -> bool:
        """True if an MTP head is used; its layer comes after all other layers."""
        return self.head_mixer is not None

    @property
    def states(self) -> tuple[RecurrentShape, ...]:
        return tuple(shape for mixer in self.mixers for shape in mixer.state_shapes)

    @property
    def num_experts(self) -> int:
        return self.feed_forward.router.num_experts

    @property
    def num_experts_per_token(self) -> int:
        return self.feed_forward.router.num_used

    @property
    def expert_scoring(self) -> Scoring:
        return self.feed_forward.router.scoring

    @property
    def is_moe(self) -> bool:
        return self.num_experts > 0

    def final_logits(self, ops: Ops[X], logits: X) -> X:
        """Returns the logits (vocabulary,) with the model's scale and soft cap applied."""
        if self.logit_scale != 1.0:
            logits = ops.scale(logits, self.logit_scale)
        if not self.final_soft_cap:
            return logits
        return ops.unary(logits, Unary.SOFT_CAP, self.final_soft_cap)

    @property
    def rope_width(self) -> int:
        """The number of cosines and sines per token, summed over the distinct ropes of layers."""
        return sum(rope.dims for rope in {mixer.rope for mixer in self.mixers} if rope)


def read_config(file: GgufFile) -> ModelConfig:
    """Reads the configuration of a model from its file.

    Raises UnsupportedModelError or ModelFileError, which name the key at fault.
    """
    require_model(file)
    architecture = file.metadata.get_str("general.architecture")
    spec = _spec(file, architecture)
    reader = HyperparameterReader(file.metadata, architecture)
    spec = spec.for_model(lambda key: reader.integer(key, 0))
    reader.defaults = spec.defaults
    epsilon = _norm_epsilon(reader)
    is_corrected = any(name.endswith(SCORE_CORRECTIONS) for name in file.tensors)
    return ModelConfig(
        spec=spec,
        architecture=architecture,
        num_layers=reader.num_layers,
        num_predict_layers=reader.num_predict_layers,
        hidden_size=reader.hidden_size,
        context_length=reader.count("context_length", maximum=1 << 31),
        norm_epsilon=epsilon,
        mixers=read_mixers(reader, spec, epsilon, _indexed_layers(file)),
        feed_forward=FeedForwardSettings(
            hidden_size=reader.hidden_size,
            norm_epsilon=epsilon,
            residual_scale=reader.number("residual_scale", 1.0) or 1.0,
            activation=spec.activation_kind,
            layer_activations=read_activations(reader, spec.activation_kind),
            router=read_router(reader, spec, is_corrected),
            weighs_input=spec.weighs_expert_input,
            gated=spec.gates_feed_forward,
            xielu=read_xielu(reader),
            norm="attn_norm" if spec.has_one_branch or spec.is_parallel else "ffn_norm",
            has_norm=spec.norms_branches,
            post_norm_epsilon=spec.post_norm_epsilon or epsilon,
            has_layer_norm=spec.may_have_layer_norms and not reader.has(_RMS_EPSILON),
            averages_shared=spec.averages_shared_expert,
        ),
        embedding_scale=_embedding_scale(reader, spec),
        logit_scale=_logit_scale(reader, spec),
        final_soft_cap=reader.number("final_logit_softcapping", 0.0),
        layer_input_width=reader.integer("embedding_length_per_layer_input", 0),
    )


def _spec(file: GgufFile, architecture: str) -> ArchitectureSpec:
    try:
        return load_spec(architecture)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(printable(f"{file.path}: {error}")) from None


def _norm_epsilon(reader: HyperparameterReader) -> float:
    """Reads the epsilon of the norms; some files have it under the key for layer norms."""
    if not reader.has(_RMS_EPSILON) and reader.has("attention.layer_norm_epsilon"):
        return reader.positive("attention.layer_norm_epsilon")
    return reader.positive(_RMS_EPSILON)


def _embedding_scale(reader: HyperparameterReader, spec: ArchitectureSpec) -> float:
    if spec.embedding_scale == "sqrt_hidden":
        return math.sqrt(reader.hidden_size)
    return reader.number("embedding_scale", 1.0) or 1.0


def _logit_scale(reader: HyperparameterReader, spec: ArchitectureSpec) -> float:
    scale = reader.number("logit_scale", 1.0) or 1.0
    return 1.0 / scale if spec.divides_logits else scale


def has_head(file: GgufFile, config: ModelConfig) -> bool:
    """Returns True if the file has an MTP head that sharpi can run.

    Some files have the metadata without the tensors. For some architectures the file does not state
    which attention the head has.
    """
    if _has_assistant(file, config):
        return True
    if not config.spec.head_is_known:
        return False
    prefix = f"blk.{config.num_layers}."
    is_there = {f"{prefix}nextn.eh_proj.weight", f"{prefix}attn_norm.weight"} <= set(file.tensors)
    return bool(config.num_predict_layers) and is_there


def with_head(file: GgufFile, config: ModelConfig, metadata: Metadata | None = None) -> ModelConfig:
    """Returns the configuration with the settings of the MTP head, or unchanged without a head.

    `metadata` is that of the head's file, if it is a separate file. Raises ModelFileError, which
    names the key at fault.
    """
    if not has_head(file, config):
        return config
    if _has_assistant(file, config):
        own = read_assistant(metadata or file.metadata, config.spec, config.mixers)
        return replace(config, head_mixer=own.mixers[-1], assistant=own)
    reader = HyperparameterReader(metadata or file.metadata, config.architecture, counts_heads=True)
    mixer = read_head_mixer(
        reader,
        config.spec,
        config.norm_epsilon,
        config.num_layers,
        _indexed_layers(file),
    )
    epsilon = 0.0
    if config.spec.head_ends_with_layer_norm:
        epsilon = reader.positive("attention.layer_norm_epsilon", config.norm_epsilon)
    return replace(config, head_mixer=mixer, head_norm_epsilon=epsilon)


def _indexed_layers(file: GgufFile) -> set[int]:
    """Returns the layers that have an indexer."""
    layers = (layer_of(name) for name in file.tensors if name.endswith(_INDEX_NORM))
    return {layer for layer in layers if layer is not None}


def _has_assistant(file: GgufFile, config: ModelConfig) -> bool:
    return f"{assistant_prefix(config.num_layers)}nextn.pre_projection.weight" in file.tensors
