"""The projections of attention: queries, keys, values, and a gate for its result."""

from typing import Generic, Literal

from msgspec import Struct

from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import AttentionShape, Matrix, Ops, X

# Where keys and values come from: the layer's own matrices; the same, except that keys serve as
# values if there is no value matrix; or an earlier layer's part of the KV cache.
KvSource = Literal["own", "own or keys", "earlier layer"]


class Projected(Struct, Generic[X], frozen=True):
    """The projections of a layer's input."""

    q: X  # (heads * key_dim,)
    k: X | None  # (KV heads * key_dim,); None if an earlier layer's keys are used
    v: X | None  # (KV heads * value_dim,); None if an earlier layer's values are used
    gate: X | None  # (heads * value_dim,), or (heads,)


class Projections(Struct, frozen=True):
    """The matrices of the projections, with their biases."""

    shape: AttentionShape
    q: Matrix
    k: Matrix | None
    v: Matrix | None  # if None, the keys before their norm serve as values
    gate: Matrix | None
    query_holds_gate: bool  # in `q`, each head's rows are followed by as many rows of a gate

    def apply(self, ops: Ops[X], h: X) -> Projected[X]:
        """Projects h (hidden,)."""
        kinds = {"q": self.q, "k": self.k, "v": self.v, "gate": self.gate}
        present = {name: matrix for name, matrix in kinds.items() if matrix is not None}
        out = dict(zip(present, ops.linear(h, list(present.values())), strict=True))
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
    """Loads a layer's projections, from separate tensors or a fused one; raises ModelFileError."""
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
    """Loads the matrix of gates, one for each value of attention's result or one for each head."""
    gate = tensors.optional_matrix("attn_gate", (None, hidden))
    if gate is None or gate.rows == shape.num_heads:
        return gate
    return tensors.matrix("attn_gate", (shape.num_heads * shape.value_dim, hidden))
