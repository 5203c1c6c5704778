"""Grouped-query attention over the KV cache: its settings, weights, projections and operations."""

from typing import TYPE_CHECKING, Generic, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from sharpi.model.mixers.rope import Angles, Rope, Temperature
from sharpi.model.norm import Norm, optional_norm
from sharpi.model.spec import HeadNorms
from sharpi.model.tensors import TensorSource
from sharpi.ops.attention_shape import AttentionShape, HeadGate
from sharpi.ops.interface import Activation, FloatArray, Matrix, Ops, Unary, X
from sharpi.ops.recurrent import RecurrentShape

if TYPE_CHECKING:
    from sharpi.model.mixers.indexer import Indexer

# The source of keys and values: the layer's matrices; the same, but the keys are also the values
# if there is no value matrix; or the KV cache of an earlier layer.
KvSource = Literal["own", "own or keys", "earlier layer"]


class Projected(Struct, Generic[X], frozen=True):
    """The results of projecting a layer's input."""

    q: X  # (heads * key_dim,)
    k: X | None  # (KV heads * key_dim,); None if an earlier layer's keys are used
    v: X | None  # (KV heads * value_dim,); None if an earlier layer's values are used
    gate: X | None  # (heads * value_dim,), or (heads,)


class Projections(Struct, frozen=True):
    """The matrices of a layer's input projections; each has its bias, if any."""

    shape: AttentionShape
    q: Matrix
    k: Matrix | None
    v: Matrix | None  # if None, the keys before their norm serve as values
    gate: Matrix | None
    query_holds_gate: bool  # in `q`, each head's rows are followed by as many rows of a gate
    limit: float = 0.0  # queries, keys and values are clamped to -limit..limit; 0 for none

    def apply(self, ops: Ops[X], h: X) -> Projected[X]:
        """Returns the queries, keys, values and gate for h (hidden,)."""
        kinds = {"q": self.q, "k": self.k, "v": self.v, "gate": self.gate}
        present = {name: matrix for name, matrix in kinds.items() if matrix is not None}
        out = dict(zip(present, ops.linear(h, list(present.values())), strict=True))
        if self.limit:
            out = {name: ops.unary(x, Unary.CLAMP, self.limit) for name, x in out.items()}
        q, gate = out["q"], out.get("gate")
        if self.query_holds_gate:
            shape = self.shape
            q, gate = ops.split(q, (shape.key_dim, shape.key_dim), groups=shape.num_heads)
        k = out.get("k")
        return Projected(q, k, out.get("v", k), gate)


def load_projections(
    tensors: TensorSource,
    shape: AttentionShape,
    hidden: int,
    *,
    kv: KvSource,
    query_holds_gate: bool,
) -> Projections:
    """Loads projections, fused or not; raises ModelFileError for a missing or misshapen tensor."""
    q_rows = shape.num_heads * shape.key_dim * (2 if query_holds_gate else 1)
    k_rows, v_rows = shape.num_kv_heads * shape.key_dim, shape.num_kv_heads * shape.value_dim
    gate = _load_gate(tensors, shape, hidden)
    k: Matrix | None = None
    v: Matrix | None = None
    if tensors.has("attn_qkv.weight"):
        q, k, v = tensors.rows("attn_qkv", (q_rows, k_rows, v_rows), hidden)
    else:
        q = tensors.matrix("attn_q", (q_rows, hidden))
        if kv != "earlier layer":
            k = tensors.matrix("attn_k", (k_rows, hidden))
        if kv == "own" or (kv == "own or keys" and tensors.has("attn_v.weight")):
            v = tensors.matrix("attn_v", (v_rows, hidden))
    return Projections(shape, q, k, v, gate, query_holds_gate)


def _load_gate(tensors: TensorSource, shape: AttentionShape, hidden: int) -> Matrix | None:
    """Loads the gate, of a row for each value of attention or each head; None without."""
    gate = tensors.optional_matrix("attn_gate", (None, hidden))
    if gate is None or gate.rows == shape.num_heads:
        return gate
    return tensors.matrix("attn_gate", (shape.num_heads * shape.value_dim, hidden))


class AttentionSettings(Struct, frozen=True):
    """The sizes and variants of one layer's attention."""

    # `shape.layer` is the layer whose keys and values are used: this one or an earlier one.
    shape: AttentionShape
    rope: Rope | None  # None if the layer has no rotary positions
    hidden_size: int
    norm_epsilon: float
    head_norms: HeadNorms = "before_rope"
    temperature: Temperature | None = None
    query_holds_gate: bool = False  # see Projections
    limit: float = 0.0  # see Projections
    kv: KvSource = "own"
    norms_values: bool = False  # each head's values are normed, without weights
    value_scale: float = 1.0  # the factor of values
    gate: HeadGate = HeadGate.SIGMOID  # the activation of the gate, if there is one

    @property
    def kv_shape(self) -> AttentionShape | None:
        return None if self.kv == "earlier layer" else self.shape

    @property
    def state_shapes(self) -> tuple[RecurrentShape, ...]:
        return ()

    def load(self, tensors: TensorSource) -> "Attention":
        """Loads the projections, and the norms and attention sinks if the file has them."""
        shape, hidden = self.shape, self.hidden_size
        projections = load_projections(
            tensors, shape, hidden, kv=self.kv, query_holds_gate=self.query_holds_gate
        )
        projections = replace(projections, limit=self.limit)
        return Attention(
            settings=self,
            projections=projections,
            output=tensors.matrix("attn_output", (hidden, shape.num_heads * shape.value_dim)),
            q_norm=self._head_norm(tensors, "attn_q_norm", shape.num_heads),
            k_norm=self._head_norm(tensors, "attn_k_norm", shape.num_kv_heads),
            v_norm=self._length(shape.value_dim) if self.norms_values else None,
            sinks=tensors.optional_vector("attn_sinks.weight", shape.num_heads),
            indexer=self._load_indexer(tensors),
        )

    def _load_indexer(self, tensors: TensorSource) -> "Indexer | None":
        index, hidden = self.shape.index, self.hidden_size
        if index is None:
            return None
        from sharpi.model.mixers.indexer import load_indexer

        return load_indexer(tensors, index, self.rope, hidden, hidden, self.norm_epsilon)

    def _head_norm(self, tensors: TensorSource, name: str, num_heads: int) -> Norm | None:
        """Returns the norm of queries or keys; None if the file has none.

        With `length_after_rope`, a layer with a rope has a norm with weights of 1.
        """
        key_dim = self.shape.key_dim
        if self.head_norms == "length_after_rope" and self.rope is not None:
            return self._length(key_dim)
        return optional_norm(tensors, name, self.norm_epsilon, key_dim, num_heads * key_dim)

    def _length(self, width: int) -> Norm:
        return Norm(np.ones(width, np.float32), self.norm_epsilon)


class Attention(Struct, frozen=True):
    """The weights of one layer's attention; norms are per head or over all heads together."""

    settings: AttentionSettings
    projections: Projections
    output: Matrix
    q_norm: Norm | None
    k_norm: Norm | None
    v_norm: Norm | None
    sinks: FloatArray | None  # (num_heads,), see Ops.attention
    indexer: "Indexer | None" = None

    def mix(self, ops: Ops[X], h: X, angles: Angles[X]) -> X:
        """Returns attention's result before `output`, (num_heads * value_dim,), for h (hidden,)."""
        settings, shape = self.settings, self.settings.shape
        projected = self.projections.apply(ops, h)
        k, v = projected.k, projected.v
        if v is not None and self.v_norm is not None:
            v = self.v_norm.apply(ops, v, shape.num_kv_heads * shape.value_dim)
        if v is not None and settings.value_scale != 1.0:
            v = ops.scale(v, settings.value_scale)
        if k is not None:
            k = self._place(ops, k, self.k_norm, shape.num_kv_heads, angles)
        q = self._place(ops, projected.q, self.q_norm, shape.num_heads, angles)
        if settings.temperature is not None:
            q = settings.temperature.apply(ops, q)
        chosen = None
        if self.indexer is not None:
            self.indexer.choose(ops, h, h, shape, angles)
            chosen = angles.chosen
        mixed = ops.attention(q, k, v, shape, self.sinks, chosen)
        if projected.gate is None:
            return mixed
        return self._gated(ops, projected.gate, mixed)

    def _gated(self, ops: Ops[X], gate: X, mixed: X) -> X:
        """Applies the gate, of values or heads, to attention's `mixed` (num_heads * value_dim,)."""
        shape, kind = self.settings.shape, self.settings.gate
        matrix = self.projections.gate
        is_whole = matrix is None or matrix.rows == shape.num_heads * shape.value_dim
        if is_whole and kind is HeadGate.SIGMOID:
            return ops.gated(gate, mixed, Activation.SIGMOID)
        return ops.gate_heads(gate, mixed, kind)

    def _place(self, ops: Ops[X], x: X, norm: Norm | None, num_heads: int, angles: Angles[X]) -> X:
        """Applies norm and rotation to queries or keys x, in the architecture's order."""
        settings, width = self.settings, num_heads * self.settings.shape.key_dim
        if norm is None:
            return angles.rotate(x, num_heads, settings.rope)
        if settings.head_norms == "before_rope":
            return angles.rotate(norm.apply(ops, x, width), num_heads, settings.rope)
        return norm.apply(ops, angles.rotate(x, num_heads, settings.rope), width)
