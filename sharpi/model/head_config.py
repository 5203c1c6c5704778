"""Reads the settings of a model's head for multi-token prediction (MTP), if its file has one.

Gemma 4's assistant, if its file is joined to the model's, counts as such a head.
"""

from msgspec.structs import replace

from sharpi.gguf.metadata import Metadata
from sharpi.gguf.reader import GgufFile
from sharpi.model.assistant_settings import assistant_prefix, read_assistant
from sharpi.model.config import ModelConfig
from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.model.mixers.mixers import read_head_mixer


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
    mixer = read_head_mixer(reader, config.spec, config.norm_epsilon, config.num_layers)
    epsilon = 0.0
    if config.spec.head_ends_with_layer_norm:
        epsilon = reader.positive("attention.layer_norm_epsilon", config.norm_epsilon)
    return replace(config, head_mixer=mixer, head_norm_epsilon=epsilon)


def _has_assistant(file: GgufFile, config: ModelConfig) -> bool:
    return f"{assistant_prefix(config.num_layers)}nextn.pre_projection.weight" in file.tensors
