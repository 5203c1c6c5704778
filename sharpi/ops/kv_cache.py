"""The KV cache of the CPU engine: f16 pages of 64 positions; who uses which is decided elsewhere.

Within a page each KV head has its keys as panels [4][key_dim][16 positions], then its values as
[64 positions][value_dim, rounded up to 16] (kernels/cpu/op_attention.cpp).
"""

from collections.abc import Iterable

import numpy as np

from sharpi.ops.interface import AttentionShape

PAGE_POSITIONS = 64


def value_stride(shape: AttentionShape) -> int:
    """Room of one position's values: a whole number of vectors of 16."""
    return (shape.value_dim + 15) // 16 * 16


def kv_bytes(shapes: Iterable[AttentionShape], num_positions: int) -> int:
    """Bytes of the KV cache for so many positions, whole pages."""
    positions = -(-num_positions // PAGE_POSITIONS) * PAGE_POSITIONS
    return sum(2 * positions * s.num_kv_heads * (s.key_dim + value_stride(s)) for s in shapes)


class KvCache:
    """All layers' pages: `num_pages` of each, zeroed, committed when first written."""

    def __init__(self, shapes: Iterable[AttentionShape], num_pages: int) -> None:
        self.num_pages = num_pages
        self.layers = {
            s.layer: np.zeros(
                (num_pages, s.num_kv_heads, PAGE_POSITIONS * (s.key_dim + value_stride(s))),
                np.uint16,
            )
            for s in shapes
        }

    @property
    def num_bytes(self) -> int:
        """Bytes of all pages of all layers."""
        return sum(layer.nbytes for layer in self.layers.values())
