"""Indexers: small attention beside a layer's own, which chooses the positions that this one reads.

Sources: DeepSeek-V3.2 (arXiv 2512.02556) and MiniMax M3, as transformers computes them. A layer of
GLM-5 may take the choice of the layer before it.
"""

import math

from msgspec import Struct
from msgspec.structs import replace

from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.model.mixers.rope import Angles, Rope
from sharpi.model.norm import Norm, load_norm, optional_norm
from sharpi.model.tensors import TensorSource
from sharpi.ops.attention_shape import AttentionShape, IndexShape
from sharpi.ops.interface import Matrix, Ops, X

_KEY_NORM_EPSILON = 1e-6  # of layer norms; files do not state it
_MAX_CHOSEN, _MAX_BLOCK, _MAX_HEADS, _MAX_KEY_DIM = 1 << 20, 1 << 10, 1 << 10, 1024


class Indexer(Struct, frozen=True):
    """The weights of one layer's indexer."""

    rope: Rope | None
    query: Matrix
    key: Matrix
    weights: Matrix | None  # of the heads' scores; None if each head chooses on its own
    query_norm: Norm | None
    key_norm: Norm

    def choose(
        self, ops: Ops[X], h: X, query_input: X, shape: AttentionShape, angles: Angles[X]
    ) -> None:
        """Chooses positions for attention of `shape`, and leaves the choice in `angles`.

        `h` (hidden,) is the layer's normed input, `query_input` the input of the matrix `query`.
        """
        index = shape.index
        assert index is not None

        def keys() -> X:
            (own,) = ops.linear(h, [self.key])
            return angles.rotate(self.key_norm.apply(ops, own), 1, self.rope)

        def queries() -> tuple[X, X | None]:
            (own,) = ops.linear(query_input, [self.query])
            if self.query_norm is not None:
                own = self.query_norm.apply(ops, own, index.num_heads * index.key_dim)
            weights = ops.linear(h, [self.weights])[0] if self.weights else None
            return angles.rotate(own, index.num_heads, self.rope), weights

        angles.chosen = ops.choose(keys, queries, shape)


def load_indexer(
    tensors: TensorSource, index: IndexShape, rope: Rope | None, hidden: int, query_width: int,
    epsilon: float,
) -> Indexer:  # fmt: skip
    """Loads a layer's indexer; `query_width` is the width of the input of its queries.

    `epsilon` is that of RMS norms. Raises ModelFileError for a missing or misshapen tensor.
    """
    heads, dim = index.num_heads, index.key_dim
    if not index.is_joint:
        return Indexer(
            rope=rope,
            query=tensors.matrix("indexer.q_proj", (heads * dim, query_width)),
            key=tensors.matrix("indexer.k_proj", (dim, hidden)),
            weights=None,
            query_norm=optional_norm(tensors, "indexer.q_norm", epsilon, dim),
            key_norm=load_norm(tensors, "indexer.k_norm", epsilon, dim),
        )
    return Indexer(
        rope=rope,
        query=tensors.matrix("indexer.attn_q_b", (heads * dim, query_width)),
        key=tensors.matrix("indexer.attn_k", (dim, hidden)),
        weights=tensors.matrix("indexer.proj", (heads, hidden)),
        query_norm=None,
        key_norm=load_norm(tensors, "indexer.k_norm", _KEY_NORM_EPSILON, dim, is_layer_norm=True),
    )


def read_index_shape(
    reader: HyperparameterReader, rope: Rope | None, *, is_joint: bool
) -> IndexShape:
    """Reads the sizes of indexers; raises ModelFileError, which names the key at fault."""
    key = "attention.indexer."
    heads = reader.count(f"{key}head_count", _MAX_HEADS)
    dim = reader.count(f"{key}key_length", _MAX_KEY_DIM)
    if rope is not None and rope.dims > dim:
        name = reader.name(f"{key}key_length")
        raise reader.fault(f"{name} is {dim}, less than the {rope.dims} values that are rotated")
    chosen = reader.count(f"{key}top_k", _MAX_CHOSEN)
    if is_joint:
        return IndexShape(heads, dim, 1.0 / math.sqrt(heads * dim), chosen)
    local = reader.integer(f"{key}local_blocks", 0)
    if not 0 <= local <= chosen:
        name = reader.name(f"{key}local_blocks")
        raise reader.fault(f"{name} is {local}, not among the {chosen} blocks that are chosen")
    block = reader.count(f"{key}block_size", _MAX_BLOCK)
    return IndexShape(heads, dim, 1.0, chosen, block, local, is_joint=False)


def with_index(
    reader: HyperparameterReader, shape: AttentionShape, rope: Rope | None, *, is_joint: bool
) -> AttentionShape:
    """Returns the shape of attention with that of its indexer.

    Raises ModelFileError if heads that choose on their own cannot share the KV heads.
    """
    index = read_index_shape(reader, rope, is_joint=is_joint)
    if shape.num_kv_heads % index.num_choices:
        name = reader.name("attention.indexer.head_count")
        raise reader.fault(
            f"{name} is {index.num_heads}; {shape.num_kv_heads} KV heads cannot share their choices"
        )
    return replace(shape, index=index)
