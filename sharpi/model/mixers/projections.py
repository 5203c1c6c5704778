"""The input projections of attention: to queries, keys, values, and a gate for its output."""

from typing import Generic, Literal

from msgspec import Struct

from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import AttentionShape, Matrix, Ops, X

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

    def apply(self, ops: Ops[X], h: X) -> Projected[X]:
        """Returns the queries, keys, values and gate for h (hidden,)."""
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
    """Loads a layer's projections, from separate tensors or from a fused one.

    Raises ModelFileError for a missing or misshapen tensor.
    """
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
    """Loads the matrix of the gate; returns None if the file has none.

    It has one row per value of the attention output, or one row per head.
    """
    gate = tensors.optional_matrix("attn_gate", (None, hidden))
    if gate is None or gate.rows == shape.num_heads:
        return gate
    return tensors.matrix("attn_gate", (shape.num_heads * shape.value_dim, hidden))
