"""The KV cache of the CPU engine: pages of 64 positions, which its users assign to sequences.

In a page each KV head has its keys, then its values unless they are part of the keys, as f16 or as
q8_0: blocks of 32 bytes with an f16 scale (kernels/cpu/attention/kv_pages.h).
"""

from collections.abc import Iterable
from typing import Literal

import numpy as np
import numpy.typing as npt

from sharpi.errors import UsageError
from sharpi.ops.cpu.buffers import aligned_bytes
from sharpi.ops.interface import AttentionShape

KvType = Literal["f16", "q8_0"]
KV_TYPE_CODES: dict[KvType, int] = {"f16": 0, "q8_0": 1}
PAGE_POSITIONS = 64
_BLOCK = 32


def value_stride(shape: AttentionShape) -> int:
    """Returns the width of one position's values, padded to whole vectors of 16."""
    return (shape.value_dim + 15) // 16 * 16


def _widths(shape: AttentionShape) -> tuple[int, ...]:
    """Returns the widths of one position in a KV head: of keys, and of values stored apart."""
    return (shape.key_dim,) if shape.values_in_keys else (shape.key_dim, value_stride(shape))


def _page_bytes(shape: AttentionShape, kv_type: KvType) -> int:
    numbers = PAGE_POSITIONS * shape.num_kv_heads * sum(_widths(shape))
    return 2 * numbers if kv_type == "f16" else numbers + 2 * (numbers // _BLOCK)


def kv_bytes(shapes: Iterable[AttentionShape], num_positions: int, kv_type: KvType = "f16") -> int:
    """Returns the bytes of the KV cache for `num_positions`, rounded up to whole pages."""
    pages = -(-num_positions // PAGE_POSITIONS)
    return pages * sum(_page_bytes(shape, kv_type) for shape in shapes)


def check_kv_type(shapes: Iterable[AttentionShape], kv_type: KvType) -> None:
    """Raises UsageError where the size of a head is not a multiple of the type's block."""
    for shape in shapes if kv_type == "q8_0" else ():
        for dim in (shape.key_dim, shape.value_dim):
            if dim % _BLOCK:
                raise UsageError(
                    f"a KV cache of {kv_type} has blocks of {_BLOCK} values, but this model's"
                    f" heads have {dim}; omit --kv-type"
                )


class KvCache:
    """The pages of all layers, `num_pages` each, zeroed; the system commits them on first write.

    The model must pass `check_kv_type` for `kv_type`.
    """

    def __init__(
        self, shapes: Iterable[AttentionShape], num_pages: int, kv_type: KvType = "f16"
    ) -> None:
        self.num_pages, self.kv_type = num_pages, kv_type
        self.layers = {
            s.layer: aligned_bytes(num_pages * _page_bytes(s, kv_type)).reshape(num_pages, -1)
            for s in shapes
        }

    def copy_page(self, source: int, target: int) -> None:
        """Copies page `source` to page `target` in every layer."""
        for layer in self.layers.values():
            layer[target] = layer[source]

    @property
    def page_bytes(self) -> int:
        """The bytes of one page of all layers."""
        return sum(layer.shape[1] for layer in self.layers.values())

    def read_page(self, page: int, target: npt.NDArray[np.uint8]) -> None:
        """Copies a page of all layers to `target`, (page_bytes,), one layer after the other."""
        at = 0
        for layer in self.layers.values():
            target[at : at + layer.shape[1]] = layer[page]
            at += layer.shape[1]

    def write_page(self, page: int, source: npt.NDArray[np.uint8]) -> None:
        """Sets a page of all layers to what `read_page` read."""
        at = 0
        for layer in self.layers.values():
            layer[page] = source[at : at + layer.shape[1]]
            at += layer.shape[1]

    @property
    def num_bytes(self) -> int:
        """The bytes of all pages of all layers."""
        return sum(layer.nbytes for layer in self.layers.values())
