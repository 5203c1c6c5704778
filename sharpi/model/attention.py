"""Attention with a KV cache, whose heads share keys and values in groups."""

import math
from dataclasses import dataclass

from sharpi.model.keys import Keys
from sharpi.model.norm import Norm, optional_norm
from sharpi.model.rope import Angles, Rope, RopeScaling, read_scaling
from sharpi.model.spec import ArchitectureSpec
from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import AttentionShape, Matrix, Ops, X

MAX_HEAD_DIM = 1024


@dataclass(frozen=True, slots=True)
class AttentionSettings:
    """One layer's attention; `rope` None leaves positions out."""

    shape: AttentionShape
    rope: Rope | None
    hidden_size: int
    norm_epsilon: float

    @property
    def kv_shape(self) -> AttentionShape:
        """Every such layer stores keys and values."""
        return self.shape

    def load(self, tensors: TensorSource) -> "Attention":
        """Projections with their biases, and norms of queries and keys where there are any."""
        shape, hidden = self.shape, self.hidden_size
        q_width, k_width = shape.num_heads * shape.key_dim, shape.num_kv_heads * shape.key_dim
        v_width, columns = shape.num_kv_heads * shape.value_dim, shape.num_heads * shape.value_dim
        epsilon = self.norm_epsilon
        return Attention(
            settings=self,
            q=tensors.matrix("attn_q", (q_width, hidden)),
            k=tensors.matrix("attn_k", (k_width, hidden)),
            v=tensors.matrix("attn_v", (v_width, hidden)),
            output=tensors.matrix("attn_output", (hidden, columns)),
            q_norm=optional_norm(tensors, "attn_q_norm", epsilon, shape.key_dim, q_width),
            k_norm=optional_norm(tensors, "attn_k_norm", epsilon, shape.key_dim, k_width),
        )


@dataclass(frozen=True, slots=True)
class Attention:
    """The weights; `q_norm` and `k_norm` are per head or over the whole width."""

    settings: AttentionSettings
    q: Matrix
    k: Matrix
    v: Matrix
    output: Matrix
    q_norm: Norm | None
    k_norm: Norm | None

    def mix(self, ops: Ops[X], h: X, angles: Angles[X]) -> X:
        """Attends from h (hidden,): (num_heads * value_dim,)."""
        shape, rope = self.settings.shape, self.settings.rope
        q, k, v = ops.linear(h, [self.q, self.k, self.v])
        if self.q_norm is not None:
            q = self.q_norm.apply(ops, q, self.q.rows)
        if self.k_norm is not None:
            k = self.k_norm.apply(ops, k, self.k.rows)
        q = angles.rotate(q, shape.num_heads, rope)
        k = angles.rotate(k, shape.num_kv_heads, rope)
        return ops.attention(q, k, v, shape)


class AttentionReader:
    """Reads the settings of every layer; raises ModelFileError naming the key at fault."""

    def __init__(self, keys: Keys, spec: ArchitectureSpec, norm_epsilon: float) -> None:
        self._keys, self._spec, self._epsilon = keys, spec, norm_epsilon
        self._scaling = read_scaling(keys.metadata, keys.architecture)
        self._base = keys.positive("rope.freq_base", 10000.0)
        self._local_base = keys.positive("rope.freq_base_swa", spec.local_rope_base)
        self._heads = keys.per_layer("attention.head_count", minimum=0)
        self._kv_heads = self._heads
        if keys.has("attention.head_count_kv"):
            self._kv_heads = keys.per_layer("attention.head_count_kv", minimum=0)
        self._rope_dims = self._read_rope_dims()

    def layer(self, index: int) -> AttentionSettings:
        """One layer's settings."""
        shape = self._shape(index)
        return AttentionSettings(
            shape, self._rope(shape.window), self._keys.hidden_size, self._epsilon
        )

    def _rope(self, window: int) -> Rope:
        interleaved = self._spec.rope_pairing == "interleaved"
        if window and self._local_base:
            return Rope(self._rope_dims, self._local_base, RopeScaling(), interleaved, False)
        return Rope(self._rope_dims, self._base, self._scaling, interleaved)

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
            window=self._window(layer),
            soft_cap=keys.number("attn_logit_softcapping", 0.0),
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

    def _window(self, layer: int) -> int:
        """The layer's sliding window in positions, 0 where it sees everything."""
        period = self._spec.window_period
        if period and layer % period == period - 1:
            return 0
        name = self._keys.name("attention.sliding_window")
        return self._keys.metadata.get_int(name, 0, minimum=0)
