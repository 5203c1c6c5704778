"""Reads each layer's attention settings: heads, sizes, scale, window, rotary embedding, keys."""

import math
from collections.abc import Set

import numpy as np

from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.model.mixers.attention import AttentionSettings, KvSource
from sharpi.model.mixers.rope import (
    Rope,
    RopeScaling,
    read_scaling,
    read_temperature,
    yarn_attention_factor,
)
from sharpi.model.spec import ArchitectureSpec
from sharpi.ops.attention_shape import AttentionShape


class RopeReader:
    """Reads the rope settings of each layer; raises ModelFileError that names the bad key."""

    def __init__(
        self, reader: HyperparameterReader, spec: ArchitectureSpec, *, has_windows: bool
    ) -> None:
        self._reader, self._spec, self._has_windows = reader, spec, has_windows
        self._scaling = self._read_scaling()
        self._base = reader.positive("rope.freq_base", 10000.0)
        self._num_dense = 0
        if spec.ropes_dense_layers:
            self._num_dense = reader.integer("leading_dense_block_count", 0)
        key = "attention.rope_pattern"  # in some files: for each layer, whether it has a rope
        self._pattern = reader.flags(key) if reader.has(key) else None
        self._local_base = reader.positive("rope.freq_base_swa", spec.local_rope_base)

    def rope(self, layer: int, window: int, key_dim: int) -> Rope | None:
        """Returns the rope of a layer with this window and head size; None if it has no rope."""
        leaves_out = self._spec.ropes_windows_only and self._has_windows and not window
        leaves_out = leaves_out and layer >= self._num_dense
        if self._pattern is not None and not self._pattern[layer]:
            return None
        period = self._spec.nope_period
        leaves_out = leaves_out or (bool(period) and (layer + 1) % period == 0)
        if leaves_out or not self._rotates():
            return None
        interleaved = self._spec.rope_pairing == "interleaved"
        dims = self._dims(window, key_dim)
        if window and self._local_base:
            return Rope(dims, self._local_base, RopeScaling(), interleaved, is_divided=False)
        return Rope(dims, self._base, self._scaling, interleaved)

    def _dims(self, window: int, key_dim: int) -> int:
        key = "rope.dimension_count"
        if window and self._reader.has(f"{key}_swa"):
            key = f"{key}_swa"
        dims = self._reader.integer(key, 0) or key_dim
        if self._spec.whole_layers_rotate_half and not window:
            dims //= 2
        if not 0 < dims <= key_dim or dims % 2:
            raise self._reader.fault(
                f"{self._reader.name(key)} is {dims}, not an even number up to {key_dim}, a head's"
                " size"
            )
        return dims

    def _read_scaling(self) -> RopeScaling:
        reader, spec = self._reader, self._spec
        scaling = read_scaling(reader.metadata, reader.architecture, spec.yarn_rounds_ramp)
        if scaling.kind == "divided" and spec.long_rope_factor:
            return scaling.with_factor(spec.long_rope_factor)
        multiplier = reader.number("rope.scaling.yarn_log_multiplier", 0.0)
        if scaling.kind == "yarn" and multiplier and not scaling.attention_factor:
            plain = yarn_attention_factor(scaling.factor)
            return scaling.with_factor(plain / yarn_attention_factor(scaling.factor, multiplier))
        return scaling

    def _rotates(self) -> bool:
        """Returns True if the model rotates; Granite's files say so in `rope.scaling.finetuned`."""
        if self._spec.rope_use == "flagged":
            return self._reader.flag("rope.scaling.finetuned", True)
        return self._spec.rope_use == "always"


MAX_HEAD_DIM = 1024


class AttentionReader:
    """Reads the attention settings of each layer; raises ModelFileError that names the bad key."""

    def __init__(
        self,
        reader: HyperparameterReader,
        spec: ArchitectureSpec,
        norm_epsilon: float,
        indexed: Set[int],
    ) -> None:
        self._reader, self._spec, self._epsilon = reader, spec, norm_epsilon
        self._indexed = indexed
        self._heads = reader.per_layer("attention.head_count", minimum=0)
        self._kv_heads = self._heads
        if reader.has("attention.head_count_kv"):
            self._kv_heads = reader.per_layer("attention.head_count_kv", minimum=0)
        if not any(self._heads):
            raise reader.fault(f"{reader.name('attention.head_count')} is 0 in all layers")
        self._windows = read_windows(reader, spec)
        self._ropes = RopeReader(reader, spec, has_windows=any(self._windows))
        self._num_storing = self._read_num_storing()
        self._temperature = read_temperature(reader, spec)

    def layer(self, index: int) -> AttentionSettings:
        shape, spec = self._shape(index), self._spec
        rope = self._ropes.rope(index, shape.window, shape.key_dim)
        if index in self._indexed:
            from sharpi.model.mixers.indexer import with_index

            shape = with_index(self._reader, shape, rope, is_joint=False)
        return AttentionSettings(
            shape=shape,
            rope=rope,
            hidden_size=self._reader.hidden_size,
            norm_epsilon=self._epsilon,
            head_norms=spec.head_norms,
            temperature=None if rope and spec.temperature_without_rope else self._temperature,
            query_holds_gate=spec.query_holds_gate,
            limit=self._reader.number("attention.clamp_kqv", 0.0),
            kv=self._kv_source(index),
            norms_values=spec.norms_values,
            gate=spec.head_gate_kind,
            value_scale=self._reader.number("attention.value_scale", 1.0),
        )

    def _shape(self, layer: int) -> AttentionShape:
        reader, num_heads, num_kv_heads = self._reader, self._heads[layer], self._kv_heads[layer]
        for count, key in ((num_heads, "head_count"), (num_kv_heads, "head_count_kv")):
            if count == 0:
                raise reader.fault(f"{reader.name(f'attention.{key}')} is 0 in layer {layer}")
        if num_heads % num_kv_heads:
            raise reader.fault(
                f"layer {layer}: {num_heads} heads cannot share {num_kv_heads} KV heads"
            )
        window = self._windows[layer]
        key_dim = self._head_size("key_length", window, reader.hidden_size // num_heads)
        return AttentionShape(
            layer=self._storing_layer(layer),
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            key_dim=key_dim,
            value_dim=self._head_size("value_length", window, key_dim),
            scale=self._scale(num_heads, key_dim),
            window=window,
            soft_cap=reader.number("attn_logit_softcapping", 0.0),
            is_chunked=bool(self._spec.chunk_size),
        )

    def _head_size(self, key: str, window: int, default: int) -> int:
        """Returns the size of a head; files may have a second key for sliding-window layers."""
        reader, key = self._reader, f"attention.{key}"
        if window and reader.has(f"{key}_swa"):
            key = f"{key}_swa"
        size = reader.integer(key, 0) or default
        if not 0 < size <= MAX_HEAD_DIM or size % 2:
            raise reader.fault(f"{reader.name(key)} is {size}; even sizes to {MAX_HEAD_DIM} work")
        return size

    def _scale(self, num_heads: int, key_dim: int) -> float:
        if self._spec.query_scale_size == "hidden_per_head":
            return 1.0 / math.sqrt(self._reader.hidden_size // num_heads)
        stated = self._reader.number("attention.scale", 0.0) or self._spec.attention_scale
        return stated or 1.0 / math.sqrt(key_dim)

    def _read_num_storing(self) -> int:
        """Returns the number of layers that store keys and values; later layers reuse theirs."""
        reader, key = self._reader, "attention.shared_kv_layers"
        shared = reader.integer(key, 0)
        if not 0 <= shared < reader.num_layers:
            name = reader.name(key)
            raise reader.fault(f"{name} is {shared}, outside 0..{reader.num_layers - 1}")
        return reader.num_layers - shared

    def _storing_layer(self, layer: int) -> int:
        """Returns the layer whose keys this one reads: itself, or the last of its window."""
        if layer < self._num_storing:
            return layer
        alike = [i for i in range(self._num_storing) if self._windows[i] == self._windows[layer]]
        if not alike:
            name = self._reader.name("attention.shared_kv_layers")
            raise self._reader.fault(f"{name} leaves layer {layer} without keys of its kind")
        return alike[-1]

    def _kv_source(self, layer: int) -> KvSource:
        if layer >= self._num_storing:
            return "earlier layer"
        return "own or keys" if self._spec.values_may_be_keys else "own"


def read_windows(reader: HyperparameterReader, spec: ArchitectureSpec) -> list[int]:
    """Returns each layer's window in positions, 0 for none; raises ModelFileError below 0."""
    size = reader.integer("attention.sliding_window", spec.chunk_size)
    if size < 0:
        raise reader.fault(f"{reader.name('attention.sliding_window')} is {size}, less than 0")
    return [size if has_window else 0 for has_window in _pattern(reader, spec)]


def _pattern(reader: HyperparameterReader, spec: ArchitectureSpec) -> list[bool]:
    """Returns for each layer whether it has an attention window.

    The file has a flag for each layer, or a period. Without either, the architecture has the
    period. In each period, all layers but the last one (or the first one) have a window. Without a
    period, all layers have one.
    """
    period = spec.window_period
    key = "attention.sliding_window_pattern"
    value = reader.metadata.get(reader.name(key))
    if isinstance(value, np.ndarray):
        return reader.flags(key)
    if value is not None:
        period = reader.integer(key)
    whole = 0 if spec.window_period_begins_whole else period - 1
    return [period <= 0 or layer % period != whole for layer in range(reader.num_layers)]
