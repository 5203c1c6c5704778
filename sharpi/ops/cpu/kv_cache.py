"""The KV cache of the CPU engine: pages of 64 positions, which callers assign to sequences.

A page has each KV head's keys, then its values unless they are part of the keys. Their types may
differ (kernels/cpu/attention/kv_pages.h). A page of a layer is one row of bytes.
"""

from collections.abc import Collection, Iterable

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.config import F16_TYPES, KvType, KvTypes
from sharpi.errors import UsageError
from sharpi.ops.cpu.buffers import aligned_bytes
from sharpi.ops.interface import AttentionShape
from sharpi.system.returnable import ReturnableMemory

_Bytes = npt.NDArray[np.uint8]
PAGE_POSITIONS = 64
KV_BLOCK = 32


class KvFormat(Struct, frozen=True):
    """The layout of a KV cache type: its bits per number, and how many 16-bit scales it has."""

    code: int  # the same in the native library and in the CUDA kernels
    bits: int
    scales_per_block: int = 0  # scales of 32 numbers: a scale, or a scale and a minimum
    scales_per_row: int = 0

    @property
    def is_packed(self) -> bool:
        """True if numbers are stored as codes, in blocks."""
        return self.bits < 16

    def row_bytes(self, dim: int) -> int:
        """Returns the bytes of a position's `dim` numbers in one head."""
        scales = self.scales_per_row + dim // KV_BLOCK * self.scales_per_block
        return dim * self.bits // 8 + 2 * scales


KV_FORMATS: dict[KvType, KvFormat] = {
    "f16": KvFormat(0, 16),
    "q8_0": KvFormat(1, 8, scales_per_block=1),
    "q5_1": KvFormat(2, 5, scales_per_block=2),
    "q5_0": KvFormat(3, 5, scales_per_block=1),
    "q4_0": KvFormat(4, 4, scales_per_block=1),
    "iq4_nl": KvFormat(5, 4, scales_per_block=1),
    "turbo3": KvFormat(6, 3, scales_per_row=1),
}


def value_stride(shape: AttentionShape) -> int:
    """Returns the width of a position's values, padded to a multiple of 16."""
    return (shape.value_dim + 15) // 16 * 16


def rotation_sizes(shape: AttentionShape, types: KvTypes) -> tuple[int, int]:
    """Returns the block sizes, in numbers, of the rotations of keys and of values; 0 for none.

    Packed types are rotated block by block with a Hadamard transform. A block is the largest power
    of two that divides the head size. Values that are part of the keys are rotated with them, in
    blocks that divide both sizes.
    """
    if shape.values_in_keys:
        both = _power_of_two(shape.key_dim | shape.value_dim)
        return (both, both) if KV_FORMATS[types.keys].is_packed else (0, 0)
    return (
        _power_of_two(shape.key_dim) if KV_FORMATS[types.keys].is_packed else 0,
        _power_of_two(shape.value_dim) if KV_FORMATS[types.values].is_packed else 0,
    )


def _power_of_two(number: int) -> int:
    """Returns the largest power of two that divides the number."""
    return number & -number


def _page_bytes(shape: AttentionShape, types: KvTypes) -> int:
    row = KV_FORMATS[types.keys].row_bytes(shape.key_dim)
    if not shape.values_in_keys:
        row += KV_FORMATS[types.values].row_bytes(value_stride(shape))
    return PAGE_POSITIONS * shape.num_kv_heads * row


def kv_bytes(
    shapes: Iterable[AttentionShape],
    num_positions: int,
    types: KvTypes = F16_TYPES,
    window_pages: int = 0,
) -> int:
    """Returns the bytes of the KV cache for `num_positions`, rounded up to whole pages.

    Sliding-window layers have at most `window_pages`; 0 does not limit them.
    """
    pages = -(-num_positions // PAGE_POSITIONS)
    return sum(
        pages_of(pages, window_pages, has_window=s.window > 0) * _page_bytes(s, types)
        for s in shapes
    )


def pages_of(num_pages: int, window_pages: int, *, has_window: bool) -> int:
    """Returns how many pages a layer has: `num_pages`, or at most `window_pages` with a window.

    If `window_pages` is 0, a window does not limit the pages.
    """
    return min(num_pages, window_pages) if has_window and window_pages else num_pages


def first_page_read(position: int, window: int) -> int:
    """Returns the index of the first page in the window of the token at `position`."""
    return max(0, position - window + 1) // PAGE_POSITIONS


def passing_pages(position: int, end: int, window: int) -> range:
    """Returns the indices of the pages between `position` and the window of the token at `end`.

    Later tokens do not read them.
    """
    return range(-(-position // PAGE_POSITIONS), first_page_read(end, window))


def check_kv_types(shapes: Iterable[AttentionShape], types: KvTypes) -> None:
    """Raises UsageError if a head size is not a multiple of the block of its KV type."""
    for shape in shapes:
        of_values = types.keys if shape.values_in_keys else types.values
        for kind, dim in ((types.keys, shape.key_dim), (of_values, shape.value_dim)):
            if KV_FORMATS[kind].is_packed and dim % KV_BLOCK:
                raise UsageError(
                    f"a KV cache of {kind} has blocks of {KV_BLOCK} values, but this model's"
                    f" heads have {dim}; omit --kv-type"
                )


def takes_kv_types(shapes: Iterable[AttentionShape], types: KvTypes) -> bool:
    """Returns True if `check_kv_types` finds nothing wrong."""
    try:
        check_kv_types(shapes, types)
    except UsageError:
        return False
    return True


class KvCache:
    """The pages of all layers, `num_pages` per layer, zeroed; the system commits them when written.

    The model must pass `check_kv_types` for `types`.
    """

    def __init__(
        self,
        shapes: Iterable[AttentionShape],
        num_pages: int,
        types: KvTypes,
        windows: Collection[int] = (),
    ) -> None:
        """Allocates the pages; `windows` are the layers whose pages `drop_windows` can free."""
        self.num_pages, self.types = num_pages, types
        self.layers: dict[int, npt.NDArray[np.uint8]] = {}
        self._windows: dict[int, ReturnableMemory] = {}
        for shape in shapes:
            size = num_pages * _page_bytes(shape, types)
            if shape.layer in windows:
                memory = self._windows[shape.layer] = ReturnableMemory(size)
                self.layers[shape.layer] = memory.array.reshape(num_pages, -1)
            else:
                self.layers[shape.layer] = aligned_bytes(size).reshape(num_pages, -1)

    def drop_windows(self, page: int, *, is_before_free: bool, is_after_free: bool) -> None:
        """Gives a page's memory in the layers `windows` back to the system; it then reads as zeros.

        A KV page may share a system page with the KV page before or after it. That system page is
        given back only if `is_before_free` or `is_after_free` says that the other KV page is free.
        """
        for layer, memory in self._windows.items():
            size = self.layers[layer].shape[1]
            memory.give_back(page * size, (page + 1) * size, widens=(is_before_free, is_after_free))

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
        _read(self.layers.values(), page, target)

    def write_page(self, page: int, source: npt.NDArray[np.uint8]) -> None:
        """Sets a page of all layers to what `read_page` read."""
        _write(self.layers.values(), page, source)

    @property
    def partial_bytes(self) -> int:
        """The bytes of one page of all layers except those whose pages `drop_windows` frees."""
        return sum(layer.shape[1] for layer in self._whole_layers())

    def read_partial(self, page: int, target: npt.NDArray[np.uint8]) -> None:
        """Copies a page of the full-attention layers to `target`, (partial_bytes,)."""
        _read(self._whole_layers(), page, target)

    def write_partial(self, page: int, source: npt.NDArray[np.uint8]) -> None:
        """Sets a page of the full-attention layers to what `read_partial` read."""
        _write(self._whole_layers(), page, source)

    def _whole_layers(self) -> list[npt.NDArray[np.uint8]]:
        return [pages for layer, pages in self.layers.items() if layer not in self._windows]

    @property
    def num_bytes(self) -> int:
        """The bytes of all pages of all layers."""
        return sum(layer.nbytes for layer in self.layers.values())


def _read(layers: Iterable[_Bytes], page: int, target: _Bytes) -> None:
    at = 0
    for layer in layers:
        target[at : at + layer.shape[1]] = layer[page]
        at += layer.shape[1]


def _write(layers: Iterable[_Bytes], page: int, source: _Bytes) -> None:
    at = 0
    for layer in layers:
        layer[page] = source[at : at + layer.shape[1]]
        at += layer.shape[1]
