"""Grouped-query attention over the KV cache: its settings, its weights and its operations."""

import numpy as np
from msgspec import Struct

from sharpi.model.mixers.projections import KvSource, Projections, load_projections
from sharpi.model.mixers.rope import Angles, Rope
from sharpi.model.mixers.temperature import Temperature
from sharpi.model.norm import Norm, optional_norm
from sharpi.model.spec import HeadNorms
from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import Activation, AttentionShape, FloatArray, HeadGate, Matrix, Ops, X
from sharpi.ops.recurrent import RecurrentShape


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
    kv: KvSource = "own"
    norms_values: bool = False  # each head's values are normed, without weights
    value_scale: float = 1.0  # the factor of values
    gate: HeadGate = HeadGate.SIGMOID  # the activation of the gate, if there is one

    @property
    def kv_shape(self) -> AttentionShape | None:
        """The shape of the layer's keys and values; None if the layer reads an earlier layer's."""
        return None if self.kv == "earlier layer" else self.shape

    @property
    def state_shapes(self) -> tuple[RecurrentShape, ...]:
        """An empty tuple: attention has no recurrent state."""
        return ()

    def load(self, tensors: TensorSource) -> "Attention":
        """Loads the projections, and the norms and attention sinks if the file has them."""
        shape, hidden = self.shape, self.hidden_size
        projections = load_projections(
            tensors, shape, hidden, kv=self.kv, query_holds_gate=self.query_holds_gate
        )
        return Attention(
            settings=self,
            projections=projections,
            output=tensors.matrix("attn_output", (hidden, shape.num_heads * shape.value_dim)),
            q_norm=self._head_norm(tensors, "attn_q_norm", shape.num_heads),
            k_norm=self._head_norm(tensors, "attn_k_norm", shape.num_kv_heads),
            v_norm=self._length(shape.value_dim) if self.norms_values else None,
            sinks=tensors.optional_vector("attn_sinks.weight", shape.num_heads),
        )

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
        mixed = ops.attention(q, k, v, shape, self.sinks)
        if projected.gate is None:
            return mixed
        return self._gated(ops, projected.gate, mixed)

    def _gated(self, ops: Ops[X], gate: X, mixed: X) -> X:
        """Applies the gate to the attention output `mixed` (num_heads * value_dim,).

        The gate has one value per value of `mixed`, or one per head.
        """
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
