"""Reads how every layer of a model attends: heads, windows, scale and rotation."""

import math

import numpy as np

from sharpi.model.attention import AttentionSettings, Temperature
from sharpi.model.keys import Keys
from sharpi.model.rope import Rope, RopeScaling, read_scaling
from sharpi.model.spec import ArchitectureSpec, HeadNorms
from sharpi.ops.interface import AttentionShape

MAX_HEAD_DIM = 1024


class AttentionReader:
    """The settings of every layer; raises ModelFileError naming the key at fault."""

    def __init__(self, keys: Keys, spec: ArchitectureSpec, norm_epsilon: float) -> None:
        self._keys, self._spec, self._epsilon = keys, spec, norm_epsilon
        self._scaling = self._read_scaling()
        self._base = keys.positive("rope.freq_base", 10000.0)
        self._local_base = keys.positive("rope.freq_base_swa", spec.local_rope_base)
        self._heads = keys.per_layer("attention.head_count", minimum=0)
        self._kv_heads = self._heads
        if keys.has("attention.head_count_kv"):
            self._kv_heads = keys.per_layer("attention.head_count_kv", minimum=0)
        self._rope_dims = self._read_rope_dims()
        self._window = self._read_window()
        self._is_windowed = self._read_pattern()

    def layer(self, index: int) -> AttentionSettings:
        """One layer's settings."""
        shape = self._shape(index)
        rope = self._rope(shape.window)
        return AttentionSettings(
            shape=shape,
            rope=rope,
            hidden_size=self._keys.hidden_size,
            norm_epsilon=self._epsilon,
            head_norms=self._head_norms(),
            temperature=None if rope else self._temperature(),
            query_holds_gate=self._spec.query_holds_gate,
        )

    def _read_scaling(self) -> RopeScaling:
        keys, spec = self._keys, self._spec
        scaling = read_scaling(keys.metadata, keys.architecture, spec.yarn_rounds_ramp)
        if scaling.kind == "divided" and spec.long_rope_factor:
            return scaling.with_factor(spec.long_rope_factor)
        return scaling

    def _head_norms(self) -> HeadNorms:
        count = self._spec.unnormed_expert_count
        if count and self._keys.integer("expert_count", 0) == count:
            return "none"
        return self._spec.head_norms

    def _temperature(self) -> Temperature | None:
        keys, spec = self._keys, self._spec
        interval = keys.integer("attention.temperature_length", spec.temperature_interval)
        rate = keys.number("attention.temperature_scale", spec.temperature_rate)
        return Temperature(interval, rate) if interval > 0 and rate else None

    def _rope(self, window: int) -> Rope | None:
        if not self._rotates() or (self._spec.ropes_windows_only and self._window and not window):
            return None
        interleaved = self._spec.rope_pairing == "interleaved"
        if window and self._local_base:
            return Rope(self._rope_dims, self._local_base, RopeScaling(), interleaved, False)
        return Rope(self._rope_dims, self._base, self._scaling, interleaved)

    def _rotates(self) -> bool:
        """Whether there are positions at all; Granite says so by a key with another name."""
        if self._spec.rope_use == "flagged":
            return self._keys.flag("rope.scaling.finetuned", True)
        return self._spec.rope_use == "always"

    def _shape(self, layer: int) -> AttentionShape:
        keys, num_heads, num_kv_heads = self._keys, self._heads[layer], self._kv_heads[layer]
        for count, key in ((num_heads, "head_count"), (num_kv_heads, "head_count_kv")):
            if count == 0:
                raise keys.fault(f"{keys.name(f'attention.{key}')} is 0 in layer {layer}")
        if num_heads % num_kv_heads:
            raise keys.fault(
                f"layer {layer}: {num_heads} heads cannot share {num_kv_heads} KV heads"
            )
        key_dim = self._key_dim(num_heads)
        return AttentionShape(
            layer=layer,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            key_dim=key_dim,
            value_dim=keys.integer("attention.value_length", 0) or key_dim,
            scale=self._scale(num_heads, key_dim),
            window=self._window if self._is_windowed[layer] else 0,
            soft_cap=keys.number("attn_logit_softcapping", 0.0),
            is_chunked=bool(self._spec.chunk_size),
        )

    def _key_dim(self, num_heads: int) -> int:
        keys = self._keys
        dim = keys.integer("attention.key_length", 0) or keys.hidden_size // num_heads
        if not 0 < dim <= MAX_HEAD_DIM or dim % 2:
            name = keys.name("attention.key_length")
            raise keys.fault(f"{name} is {dim}; even sizes to {MAX_HEAD_DIM} work")
        return dim

    def _read_rope_dims(self) -> int:
        key_dim = min((self._key_dim(heads) for heads in self._heads if heads), default=0)
        if not key_dim:
            raise self._keys.fault(f"{self._keys.name('attention.head_count')} is 0 in all layers")
        dims = self._keys.integer("rope.dimension_count", 0) or key_dim
        if not 0 < dims <= key_dim or dims % 2:
            name = self._keys.name("rope.dimension_count")
            raise self._keys.fault(
                f"{name} is {dims}, not an even number up to {key_dim}, a head's size"
            )
        return dims

    def _scale(self, num_heads: int, key_dim: int) -> float:
        if self._keys.num_layers == self._spec.hidden_query_scale_layers:
            return 1.0 / math.sqrt(self._keys.hidden_size // num_heads)
        return self._keys.number("attention.scale", 0.0) or 1.0 / math.sqrt(key_dim)

    def _read_window(self) -> int:
        """Positions of a sliding window or a chunk, 0 where there are none."""
        window = self._keys.integer("attention.sliding_window", self._spec.chunk_size)
        if window < 0:
            name = self._keys.name("attention.sliding_window")
            raise self._keys.fault(f"{name} is {window}, less than 0")
        return window

    def _read_pattern(self) -> list[bool]:
        """Which layers have a window: the file's flags or period, else the architecture's."""
        keys, key, period = self._keys, "attention.sliding_window_pattern", self._spec.window_period
        value = keys.metadata.get(keys.name(key))
        if isinstance(value, np.ndarray):
            return keys.flags(key)
        if value is not None:
            period = keys.integer(key)
        return [not _is_last(layer, period) for layer in range(keys.num_layers)]


def _is_last(layer: int, period: int) -> bool:
    """Whether the layer is the last of a period; there is none with a period of 0."""
    return period > 0 and layer % period == period - 1
