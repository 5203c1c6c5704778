"""Multi-head latent attention: one compressed vector per position in the KV cache for all heads.

Keys and values are products of that latent vector with matrices of each head. The matrix for keys
is applied to the query instead, and the matrix for values to the result of attention. So all heads
share one KV head, whose key is [latent, rotated part] and whose value is the latent (DeepSeek-V2,
arXiv 2405.04434).

Files made since April 2025 have two tensors for the matrices of heads. Older files have a single
one for the keys and values of all heads, which is split here.
"""

import math
from collections.abc import Set

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from sharpi.gguf.quant_types import QuantType
from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.model.mixers.indexer import Indexer, load_indexer, with_index
from sharpi.model.mixers.rope import Angles, Rope, Temperature, read_scaling, read_temperature
from sharpi.model.norm import Norm, load_norm
from sharpi.model.spec import ArchitectureSpec
from sharpi.model.tensors import TensorSource
from sharpi.ops.attention_shape import AttentionShape, HeadGate
from sharpi.ops.cpu.library import dequantise_rows
from sharpi.ops.interface import Matrix, Ops, StackedMatrix, X
from sharpi.ops.recurrent import RecurrentShape


class HeadMatrices(Struct, frozen=True):
    """One layer's matrices from the latent vector to the keys and values of each head."""

    keys: StackedMatrix  # (heads, latent, plain), applied to queries
    values: StackedMatrix  # (heads, value, latent), applied to the result of attention


def load_head_matrices(
    tensors: TensorSource, heads: int, plain_dim: int, value_dim: int, latent: int
) -> HeadMatrices:
    """Loads the matrices of one layer; raises ModelFileError for a missing or misshapen tensor.

    `plain_dim` is the number of values of a head that are not rotated.
    """
    if not tensors.has("attn_kv_b.weight"):
        return HeadMatrices(
            keys=tensors.stacked("attn_k_b", heads, (latent, plain_dim)),
            values=tensors.stacked("attn_v_b", heads, (value_dim, latent)),
        )
    whole = tensors.matrix("attn_kv_b", (heads * (plain_dim + value_dim), latent))
    data = tensors.tensor("attn_kv_b.weight").data_in_file
    return _divide(replace(whole, data=data), heads, plain_dim)


def _divide(whole: Matrix, heads: int, plain_dim: int) -> HeadMatrices:
    """Splits a matrix that has, for each head, rows for keys and then rows for values.

    The part for keys is dequantised to float16 and transposed.
    """
    rows = whole.data.reshape(heads, whole.rows // heads, -1)
    values = np.ascontiguousarray(rows[:, plain_dim:])
    keys = dequantise_rows(whole.quant_type, rows[:, :plain_dim], whole.columns)
    turned = np.ascontiguousarray(keys.transpose(0, 2, 1), dtype=np.float16)
    latent, value_dim = whole.columns, whole.rows // heads - plain_dim
    return HeadMatrices(
        keys=StackedMatrix(
            whole.name, QuantType.F16, heads, latent, plain_dim, turned.view(np.uint8)
        ),
        values=StackedMatrix(whole.name, whole.quant_type, heads, value_dim, latent, values),
    )


class LatentAttentionSettings(Struct, frozen=True):
    """The sizes and settings of one layer's latent attention."""

    kv_shape: AttentionShape
    rope: Rope | None  # None if no values are rotated
    hidden_size: int
    norm_epsilon: float
    query_rank: int  # the width of the compressed queries; 0 if queries are not compressed
    plain_dim: int  # how many leading values of a query head are not rotated
    rotated_dim: int  # of the others, which all heads share in keys
    value_dim: int
    temperature: Temperature | None = None
    index_rope: Rope | None = None  # of the layer's indexer, see kv_shape.index
    takes_choice: int | None = None  # the layer whose indexer chooses for this one; None for none

    @property
    def state_shapes(self) -> tuple[RecurrentShape, ...]:
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
            compress=tensors.matrix("attn_kv_a_mqa", (latent + self.rotated_dim, hidden)),
            latent_norm=load_norm(tensors, "attn_kv_a_norm", self.norm_epsilon, latent),
            matrices=load_head_matrices(tensors, heads, self.plain_dim, self.value_dim, latent),
            gate=tensors.optional_matrix("attn_gate", (heads, hidden)),
            output=tensors.matrix("attn_output", (hidden, heads * self.value_dim)),
            indexer=self._load_indexer(tensors),
        )

    def _load_indexer(self, tensors: TensorSource) -> Indexer | None:
        index, hidden = self.kv_shape.index, self.hidden_size
        if index is None:
            return None
        rope, width = self.index_rope, self.query_rank or hidden
        return load_indexer(tensors, index, rope, hidden, width, self.norm_epsilon)

    def _load_query(self, tensors: TensorSource) -> "QueryProjection":
        width = self.kv_shape.num_heads * (self.plain_dim + self.rotated_dim)
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
    gate: Matrix | None  # of each head's result
    output: Matrix
    indexer: Indexer | None

    def mix(self, ops: Ops[X], h: X, angles: Angles[X]) -> X:
        """Returns attention's result before `output`, (num_heads * value_dim,), for h (hidden,)."""
        s = self.settings
        queries, compressed = self._project(ops, h, angles)
        latent, shared = ops.split(compressed, [s.latent_dim, s.rotated_dim])
        key = ops.join(self.latent_norm.apply(ops, latent), angles.rotate(shared, 1, s.rope))
        query = self._absorb(ops, queries, angles)
        if s.temperature is not None:
            query = s.temperature.apply(ops, query)
        chosen = angles.chosen if s.kv_shape.is_sparse else None
        attended = ops.attention(query, key, None, s.kv_shape, chosen=chosen)
        mixed = ops.head_linear(attended, self.matrices.values)
        if self.gate is None:
            return mixed
        (gate,) = ops.linear(h, [self.gate])
        return ops.gate_heads(gate, mixed, HeadGate.SIGMOID)

    def _project(self, ops: Ops[X], h: X, angles: Angles[X]) -> tuple[X, X]:
        """Returns the queries of all heads, and the concatenated latent vector and rotary part.

        The indexer, which reads what queries are computed from, chooses meanwhile.
        """
        query = self.query
        if query.compress is None or query.norm is None:
            queries, compressed = ops.linear(h, [query.matrix, self.compress])
            source = h
        else:
            narrow, compressed = ops.linear(h, [query.compress, self.compress])
            source = query.norm.apply(ops, narrow)
            (queries,) = ops.linear(source, [query.matrix])
        if self.indexer is not None:
            self.indexer.choose(ops, h, source, self.settings.kv_shape, angles)
        return queries, compressed

    def _absorb(self, ops: Ops[X], queries: X, angles: Angles[X]) -> X:
        """Returns each head's query for the latent vector, then the rotated query."""
        s, heads = self.settings, self.settings.kv_shape.num_heads
        plain, rotated = ops.split(queries, [s.plain_dim, s.rotated_dim], heads)
        rotated = angles.rotate(rotated, heads, s.rope)
        return ops.join(ops.head_linear(plain, self.matrices.keys), rotated, heads)


MAX_KEY_DIM = 1024
_MULTIPLIER = "rope.scaling.yarn_log_multiplier"
_MAX_SHARPNESS = 1e6


class LatentAttentionReader:
    """Reads the attention settings of each layer; raises ModelFileError that names the bad key."""

    def __init__(
        self,
        reader: HyperparameterReader,
        spec: ArchitectureSpec,
        norm_epsilon: float,
        indexed: Set[int],
    ) -> None:
        self._reader, self._epsilon, self._indexed = reader, norm_epsilon, indexed
        self._rotates_index_halves = spec.indexer_rotates_halves
        self._is_interleaved = spec.rope_pairing == "interleaved"
        self._rotates = spec.rope_use != "never"
        self._scaling = read_scaling(reader.metadata, reader.architecture, spec.yarn_rounds_ramp)
        self._heads = reader.per_layer("attention.head_count")
        self._latent = reader.count("attention.kv_lora_rank", MAX_KEY_DIM)
        self._rotated = reader.count("rope.dimension_count", MAX_KEY_DIM)
        # Older files have the sizes of the heads under the usual names.
        suffix = "_mla" if reader.has("attention.key_length_mla") else ""
        self._head_dim = reader.count(f"attention.key_length{suffix}", MAX_KEY_DIM)
        self._value_dim = reader.count(f"attention.value_length{suffix}", MAX_KEY_DIM)
        self._temperature = read_temperature(reader, spec)
        self._check_sizes()

    def layer(self, index: int) -> LatentAttentionSettings:
        shape, rope = self._shape(index), self._rope() if self._rotates else None
        index_rope = rope and replace(rope, is_interleaved=not self._rotates_index_halves)
        source = self._choosing_layer(index)
        if index in self._indexed:
            shape = with_index(self._reader, shape, index_rope, is_joint=True)
        shape = replace(shape, is_sparse=index in self._indexed or source is not None)
        return LatentAttentionSettings(
            kv_shape=shape,
            rope=rope,
            hidden_size=self._reader.hidden_size,
            norm_epsilon=self._epsilon,
            query_rank=self._reader.integer("attention.q_lora_rank", 0),
            plain_dim=self._head_dim - self._rotated,
            rotated_dim=self._rotated,
            value_dim=self._value_dim,
            temperature=self._temperature,
            index_rope=index_rope,
            takes_choice=source,
        )

    def _shape(self, layer: int) -> AttentionShape:
        return AttentionShape(
            layer=layer,
            num_heads=self._heads[layer],
            num_kv_heads=1,
            key_dim=self._latent + self._rotated,
            value_dim=self._latent,
            scale=self._sharpness() / math.sqrt(self._head_dim),
            values_in_keys=True,
        )

    def _choosing_layer(self, layer: int) -> int | None:
        """Returns the last layer before this one that has an indexer, if this one has none."""
        if layer in self._indexed:
            return None
        return max((each for each in self._indexed if each < layer), default=None)

    def _check_sizes(self) -> None:
        reader, rotated = self._reader, self._rotated
        if rotated % 2 or rotated >= self._head_dim or rotated + self._latent > MAX_KEY_DIM:
            name = reader.name("rope.dimension_count")
            raise reader.fault(
                f"{name} is {rotated}; it must be even, less than a head's {self._head_dim}, and"
                f" with the {self._latent} latent values at most {MAX_KEY_DIM}"
            )

    def _sharpness(self) -> float:
        """Returns the factor of the attention scale: with YaRN (1 + multiplier * ln(factor))^2."""
        if self._scaling.kind != "yarn":
            return 1.0
        multiplier = self._reader.number(_MULTIPLIER, 0.0)
        factor = 1.0 + multiplier * math.log(self._scaling.factor)
        if abs(factor) > _MAX_SHARPNESS:
            name = self._reader.name(_MULTIPLIER)
            raise self._reader.fault(f"{name} is {multiplier}, by far too large")
        return factor * factor

    def _rope(self) -> Rope:
        """Returns the rope of all layers.

        If the file has YaRN's multiplier, cosines and sines are not scaled: the multiplier scales
        attention instead, see `_sharpness`.
        """
        scaling, base = self._scaling, self._reader.positive("rope.freq_base", 10000.0)
        if scaling.kind == "yarn" and self._reader.has(_MULTIPLIER):
            scaling = scaling.with_factor(1.0)
        return Rope(self._rotated, base, scaling, self._is_interleaved)
