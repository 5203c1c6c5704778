"""Multi-head latent attention: one compressed vector per position in the KV cache for all heads.

Keys and values are products of that latent vector with matrices of each head. The matrix for keys
is applied to the query instead, and the matrix for values to the result of attention. So all heads
share one KV head, whose key is [latent, rotated part] and whose value is the latent (DeepSeek-V2,
arXiv 2405.04434).
"""

from msgspec import Struct

from sharpi.model.mixers.head_matrices import HeadMatrices, load_head_matrices
from sharpi.model.mixers.rope import Angles, Rope
from sharpi.model.mixers.temperature import Temperature
from sharpi.model.norm import Norm, load_norm
from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import AttentionShape, Matrix, Ops, X
from sharpi.ops.recurrent import RecurrentShape


class LatentAttentionSettings(Struct, frozen=True):
    """The sizes and settings of one layer's latent attention."""

    kv_shape: AttentionShape
    rope: Rope
    hidden_size: int
    norm_epsilon: float
    query_rank: int  # the width of the compressed queries; 0 if queries are not compressed
    plain_dim: int  # how many leading values of a query head are not rotated
    value_dim: int
    temperature: Temperature | None = None

    @property
    def state_shapes(self) -> tuple[RecurrentShape, ...]:
        """An empty tuple: latent attention has no recurrent state."""
        return ()

    @property
    def latent_dim(self) -> int:
        """The width of the latent vector from which keys and values are computed."""
        return self.kv_shape.value_dim

    def load(self, tensors: TensorSource) -> "LatentAttention":
        """Loads the projections, the norms, and the per-head matrices."""
        heads, hidden, latent = self.kv_shape.num_heads, self.hidden_size, self.latent_dim
        return LatentAttention(
            settings=self,
            query=self._load_query(tensors),
            compress=tensors.matrix("attn_kv_a_mqa", (latent + self.rope.dims, hidden)),
            latent_norm=load_norm(tensors, "attn_kv_a_norm", self.norm_epsilon, latent),
            matrices=load_head_matrices(tensors, heads, self.plain_dim, self.value_dim, latent),
            output=tensors.matrix("attn_output", (hidden, heads * self.value_dim)),
        )

    def _load_query(self, tensors: TensorSource) -> "QueryProjection":
        width = self.kv_shape.num_heads * (self.plain_dim + self.rope.dims)
        rank = self.query_rank
        if not rank:
            return QueryProjection(tensors.matrix("attn_q", (width, self.hidden_size)))
        return QueryProjection(
            matrix=tensors.matrix("attn_q_b", (width, rank)),
            compress=tensors.matrix("attn_q_a", (rank, self.hidden_size)),
            norm=load_norm(tensors, "attn_q_a_norm", self.norm_epsilon, rank),
        )


class QueryProjection(Struct, frozen=True):
    """The matrices that compute queries: a single one, or two with a norm in between."""

    matrix: Matrix
    compress: Matrix | None = None
    norm: Norm | None = None


class LatentAttention(Struct, frozen=True):
    """The weights of one layer's latent attention."""

    settings: LatentAttentionSettings
    query: QueryProjection
    compress: Matrix  # computes [latent, part to be rotated] of a position
    latent_norm: Norm
    matrices: HeadMatrices
    output: Matrix

    def mix(self, ops: Ops[X], h: X, angles: Angles[X]) -> X:
        """Returns attention's result before `output`, (num_heads * value_dim,), for h (hidden,)."""
        s = self.settings
        queries, compressed = self._project(ops, h)
        latent, shared = ops.split(compressed, [s.latent_dim, s.rope.dims])
        key = ops.join(self.latent_norm.apply(ops, latent), angles.rotate(shared, 1, s.rope))
        query = self._absorb(ops, queries, angles)
        if s.temperature is not None:
            query = s.temperature.apply(ops, query)
        attended = ops.attention(query, key, None, s.kv_shape)
        return ops.head_linear(attended, self.matrices.values)

    def _project(self, ops: Ops[X], h: X) -> tuple[X, X]:
        """Returns the queries of all heads, and the concatenated latent vector and rotary part."""
        query = self.query
        if query.compress is None or query.norm is None:
            queries, compressed = ops.linear(h, [query.matrix, self.compress])
            return queries, compressed
        narrow, compressed = ops.linear(h, [query.compress, self.compress])
        (queries,) = ops.linear(query.norm.apply(ops, narrow), [query.matrix])
        return queries, compressed

    def _absorb(self, ops: Ops[X], queries: X, angles: Angles[X]) -> X:
        """Applies the matrix for keys to the queries.

        Returns for each head the query for the latent vector, then the rotated query.
        """
        s, heads = self.settings, self.settings.kv_shape.num_heads
        plain, rotated = ops.split(queries, [s.plain_dim, s.rope.dims], heads)
        rotated = angles.rotate(rotated, heads, s.rope)
        return ops.join(ops.head_linear(plain, self.matrices.keys), rotated, heads)
