"""Attention with a KV cache, whose heads share keys and values in groups."""

from dataclasses import dataclass

import numpy as np

from sharpi.model.norm import Norm, optional_norm
from sharpi.model.rope import Angles, Rope
from sharpi.model.spec import HeadNorms
from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import Activation, AttentionShape, FloatArray, Matrix, Ops, X
from sharpi.ops.recurrent import RecurrentShape


@dataclass(frozen=True, slots=True)
class Temperature:
    """Queries grow with the logarithm of their position: see Ops.scale_by_position."""

    interval: int
    rate: float


@dataclass(frozen=True, slots=True)
class AttentionSettings:
    """One layer's attention; `rope` None leaves positions out.

    `query_holds_gate`: the rows of each head's query are followed by those of a gate as wide.
    """

    shape: AttentionShape
    rope: Rope | None
    hidden_size: int
    norm_epsilon: float
    head_norms: HeadNorms = "before_rope"
    temperature: Temperature | None = None
    query_holds_gate: bool = False

    @property
    def kv_shape(self) -> AttentionShape:
        """Every such layer stores keys and values."""
        return self.shape

    @property
    def state_shapes(self) -> tuple[RecurrentShape, ...]:
        """Nothing else is carried."""
        return ()

    def load(self, tensors: TensorSource) -> "Attention":
        """Projections with their biases, and what else the file has for the layer."""
        shape, hidden = self.shape, self.hidden_size
        q_width, k_width = shape.num_heads * shape.key_dim, shape.num_kv_heads * shape.key_dim
        q_rows = 2 * q_width if self.query_holds_gate else q_width
        heights = (q_rows, k_width, shape.num_kv_heads * shape.value_dim)
        columns = shape.num_heads * shape.value_dim
        epsilon = self.norm_epsilon
        q, k, v = _projections(tensors, heights, hidden)
        return Attention(
            settings=self,
            q=q,
            k=k,
            v=v,
            output=tensors.matrix("attn_output", (hidden, columns)),
            q_norm=self._length()
            or optional_norm(tensors, "attn_q_norm", epsilon, shape.key_dim, q_width),
            k_norm=self._length()
            or optional_norm(tensors, "attn_k_norm", epsilon, shape.key_dim, k_width),
            sinks=tensors.optional_vector("attn_sinks.weight", shape.num_heads),
            gate=tensors.optional_matrix("attn_gate", (columns, hidden)),
        )

    def _length(self) -> Norm | None:
        """The norm of heads by length alone, in the layers that rotate them."""
        if self.head_norms != "length_after_rope" or self.rope is None:
            return None
        return Norm(np.ones(self.shape.key_dim, np.float32), self.norm_epsilon)


def _projections(tensors: TensorSource, heights: tuple[int, int, int], hidden: int) -> list[Matrix]:
    """Queries, keys and values: three matrices, or one above the other in a single one."""
    if tensors.has("attn_qkv.weight"):
        return tensors.rows("attn_qkv", heights, hidden)
    names = ("attn_q", "attn_k", "attn_v")
    return [tensors.matrix(name, (rows, hidden)) for name, rows in zip(names, heights, strict=True)]


@dataclass(frozen=True, slots=True)
class Attention:
    """The weights; `q_norm` and `k_norm` are per head or over the whole width.

    `sinks` (num_heads,): see Ops.attention. `gate`: its sigmoid multiplies what was attended to.
    """

    settings: AttentionSettings
    q: Matrix
    k: Matrix
    v: Matrix
    output: Matrix
    q_norm: Norm | None
    k_norm: Norm | None
    sinks: FloatArray | None
    gate: Matrix | None

    def mix(self, ops: Ops[X], h: X, angles: Angles[X]) -> X:
        """Attends from h (hidden,): (num_heads * value_dim,)."""
        settings, shape = self.settings, self.settings.shape
        q, k, v, *gate = ops.linear(
            h, [self.q, self.k, self.v, *([self.gate] if self.gate else [])]
        )
        if settings.query_holds_gate:
            q, *gate = ops.split(q, (shape.key_dim, shape.key_dim), groups=shape.num_heads)
        q = self._place(ops, q, self.q_norm, shape.num_heads, angles)
        k = self._place(ops, k, self.k_norm, shape.num_kv_heads, angles)
        if settings.temperature is not None:
            tuned = settings.temperature
            q = ops.scale_by_position(q, tuned.interval, tuned.rate)
        mixed = ops.attention(q, k, v, shape, self.sinks)
        return ops.gated(gate[0], mixed, Activation.SIGMOID) if gate else mixed

    def _place(self, ops: Ops[X], x: X, norm: Norm | None, num_heads: int, angles: Angles[X]) -> X:
        """Queries or keys, normed and rotated in the architecture's order."""
        settings, width = self.settings, num_heads * self.settings.shape.key_dim
        if norm is None:
            return angles.rotate(x, num_heads, settings.rope)
        if settings.head_norms == "before_rope":
            return angles.rotate(norm.apply(ops, x, width), num_heads, settings.rope)
        return norm.apply(ops, angles.rotate(x, num_heads, settings.rope), width)
