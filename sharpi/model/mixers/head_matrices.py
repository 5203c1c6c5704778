"""Loads the per-head matrices of latent attention: one for keys, one for values.

Files made since April 2025 have two tensors. Older files have a single matrix for the keys and
values of all heads, which is split here.
"""

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from sharpi.gguf.quant_types import QuantType
from sharpi.model.tensors import TensorSource
from sharpi.ops.cpu.library import dequantise_rows
from sharpi.ops.interface import Matrix, StackedMatrix


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
