"""The KV cache of the CPU engine: f16 pages of 64 positions; who uses which is decided elsewhere.

Within a page each KV head has its keys as panels [4][key_dim][16 positions], then its values as
[64 positions][value_dim, rounded up to 16] (kernels/cpu/op_attention.cpp), unless they are in the
keys.
"""

from collections.abc import Iterable

import numpy as np

from sharpi.ops.interface import AttentionShape

PAGE_POSITIONS = 64


def value_stride(shape: AttentionShape) -> int:
    """Room of one position's values: a whole number of vectors of 16."""
    return (shape.value_dim + 15) // 16 * 16


def _halves(shape: AttentionShape) -> int:
    """Values of one position and KV head, all together."""
    return shape.key_dim + (0 if shape.values_in_keys else value_stride(shape))


def kv_bytes(shapes: Iterable[AttentionShape], num_positions: int) -> int:
    """Bytes of the KV cache for so many positions, whole pages."""
    positions = -(-num_positions // PAGE_POSITIONS) * PAGE_POSITIONS
    return sum(2 * positions * s.num_kv_heads * _halves(s) for s in shapes)


class KvCache:
    """All layers' pages: `num_pages` of each, zeroed, committed when first written."""

    def __init__(self, shapes: Iterable[AttentionShape], num_pages: int) -> None:
        self.num_pages = num_pages
        self.layers = {
            s.layer: np.zeros((num_pages, s.num_kv_heads, PAGE_POSITIONS * _halves(s)), np.uint16)
            for s in shapes
        }

    def copy_page(self, source: int, target: int) -> None:
        """Makes a page of every layer what another is."""
        for layer in self.layers.values():
            layer[target] = layer[source]

    @property
    def num_bytes(self) -> int:
        """Bytes of all pages of all layers."""
        return sum(layer.nbytes for layer in self.layers.values())
