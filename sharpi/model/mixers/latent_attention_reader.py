"""Reads the sizes of multi-head latent attention, and what YaRN makes of its scale."""

import math

from sharpi.errors import UnsupportedModelError
from sharpi.gguf.fault import printable
from sharpi.model.keys import Keys
from sharpi.model.mixers.latent_attention import LatentAttentionSettings
from sharpi.model.mixers.rope import Rope, read_scaling
from sharpi.model.spec import ArchitectureSpec
from sharpi.ops.interface import AttentionShape

MAX_KEY_DIM = 1024
_MULTIPLIER = "rope.scaling.yarn_log_multiplier"


class LatentAttentionReader:
    """The settings of every layer; raises ModelFileError naming the key at fault."""

    def __init__(self, keys: Keys, spec: ArchitectureSpec, norm_epsilon: float) -> None:
        _refuse_temperature(keys)
        self._keys, self._epsilon = keys, norm_epsilon
        self._is_interleaved = spec.rope_pairing == "interleaved"
        self._scaling = read_scaling(keys.metadata, keys.architecture, spec.yarn_rounds_ramp)
        self._heads = keys.per_layer("attention.head_count")
        self._latent = keys.count("attention.kv_lora_rank", MAX_KEY_DIM)
        self._rotated = keys.count("rope.dimension_count", MAX_KEY_DIM)
        # Older files have the heads' own sizes under the usual names.
        suffix = "_mla" if keys.has("attention.key_length_mla") else ""
        self._head_dim = keys.count(f"attention.key_length{suffix}", MAX_KEY_DIM)
        self._value_dim = keys.count(f"attention.value_length{suffix}", MAX_KEY_DIM)
        self._check_sizes()

    def layer(self, index: int) -> LatentAttentionSettings:
        """One layer's settings."""
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
            hidden_size=self._keys.hidden_size,
            norm_epsilon=self._epsilon,
            query_rank=self._keys.integer("attention.q_lora_rank", 0),
            plain_dim=self._head_dim - self._rotated,
            value_dim=self._value_dim,
        )

    def _check_sizes(self) -> None:
        keys, rotated = self._keys, self._rotated
        if rotated % 2 or rotated >= self._head_dim or rotated + self._latent > MAX_KEY_DIM:
            name = keys.name("rope.dimension_count")
            raise keys.fault(
                f"{name} is {rotated}, not an even part of {self._head_dim}, a head's size,"
                f" that with {self._latent} latent values makes at most {MAX_KEY_DIM}"
            )

    def _sharpness(self) -> float:
        """What YaRN scales attention by: (1 + multiplier * ln(factor))^2."""
        if self._scaling.kind != "yarn":
            return 1.0
        multiplier = self._keys.number(_MULTIPLIER, 0.0)
        return (1.0 + multiplier * math.log(self._scaling.factor)) ** 2

    def _rope(self) -> Rope:
        """The multiplier takes the place of a factor of cosines and sines."""
        scaling, base = self._scaling, self._keys.positive("rope.freq_base", 10000.0)
        if scaling.kind == "yarn" and self._keys.has(_MULTIPLIER):
            scaling = scaling.with_factor(1.0)
        return Rope(self._rotated, base, scaling, self._is_interleaved)


def _refuse_temperature(keys: Keys) -> None:
    key = "attention.temperature_scale"
    if keys.has(key):
        path, name = keys.metadata.path, keys.name(key)
        raise UnsupportedModelError(
            printable(f"{path}: {name} is for Mistral Large 3, which sharpi does not run yet")
        )
