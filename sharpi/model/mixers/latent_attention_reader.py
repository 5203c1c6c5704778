"""Reads the settings of multi-head latent attention, including its scale with YaRN."""

import math

from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.model.mixers.latent_attention import LatentAttentionSettings
from sharpi.model.mixers.rope import Rope, read_scaling
from sharpi.model.mixers.temperature import read_temperature
from sharpi.model.spec import ArchitectureSpec
from sharpi.ops.interface import AttentionShape

MAX_KEY_DIM = 1024
_MULTIPLIER = "rope.scaling.yarn_log_multiplier"
_MAX_SHARPNESS = 1e6


class LatentAttentionReader:
    """Reads the attention settings of each layer; raises ModelFileError that names the bad key."""

    def __init__(
        self, reader: HyperparameterReader, spec: ArchitectureSpec, norm_epsilon: float
    ) -> None:
        self._reader, self._epsilon = reader, norm_epsilon
        self._is_interleaved = spec.rope_pairing == "interleaved"
        self._scaling = read_scaling(reader.metadata, reader.architecture, spec.yarn_rounds_ramp)
        self._heads = reader.per_layer("attention.head_count")
        self._latent = reader.count("attention.kv_lora_rank", MAX_KEY_DIM)
        self._rotated = reader.count("rope.dimension_count", MAX_KEY_DIM)
        # Older files have the sizes of the heads under the usual names.
        suffix = "_mla" if reader.has("attention.key_length_mla") else ""
        self._head_dim = reader.count(f"attention.key_length{suffix}", MAX_KEY_DIM)
        self._value_dim = reader.count(f"attention.value_length{suffix}", MAX_KEY_DIM)
        self._temperature = read_temperature(reader, spec)
        self._check_sizes()

    def layer(self, index: int) -> LatentAttentionSettings:
        """Returns the attention settings of one layer."""
        return LatentAttentionSettings(
            kv_shape=AttentionShape(
                layer=index,
                num_heads=self._heads[index],
                num_kv_heads=1,
                key_dim=self._latent + self._rotated,
                value_dim=self._latent,
                scale=self._sharpness() / math.sqrt(self._head_dim),
                values_in_keys=True,
            ),
            rope=self._rope(),
            hidden_size=self._reader.hidden_size,
            norm_epsilon=self._epsilon,
            query_rank=self._reader.integer("attention.q_lora_rank", 0),
            plain_dim=self._head_dim - self._rotated,
            value_dim=self._value_dim,
            temperature=self._temperature,
        )

    def _check_sizes(self) -> None:
        reader, rotated = self._reader, self._rotated
        if rotated % 2 or rotated >= self._head_dim or rotated + self._latent > MAX_KEY_DIM:
            name = reader.name("rope.dimension_count")
            raise reader.fault(
                f"{name} is {rotated}; it must be even, less than a head's {self._head_dim}, and"
                f" with the {self._latent} latent values at most {MAX_KEY_DIM}"
            )

    def _sharpness(self) -> float:
        """Returns the factor of the attention scale with YaRN: (1 + multiplier * ln(factor))^2.

        It is 1 without YaRN.
        """
        if self._scaling.kind != "yarn":
            return 1.0
        multiplier = self._reader.number(_MULTIPLIER, 0.0)
        factor = 1.0 + multiplier * math.log(self._scaling.factor)
        if abs(factor) > _MAX_SHARPNESS:
            name = self._reader.name(_MULTIPLIER)
            raise self._reader.fault(f"{name} is {multiplier}, by far too large")
        return factor * factor

    def _rope(self) -> Rope:
        """Returns the rope of all layers.

        If the file has YaRN's multiplier, cosines and sines are not scaled: the multiplier scales
        attention instead, see `_sharpness`.
        """
        scaling, base = self._scaling, self._reader.positive("rope.freq_base", 10000.0)
        if scaling.kind == "yarn" and self._reader.has(_MULTIPLIER):
            scaling = scaling.with_factor(1.0)
        return Rope(self._rotated, base, scaling, self._is_interleaved)
