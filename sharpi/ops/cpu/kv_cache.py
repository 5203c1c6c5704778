"""The KV cache of the CPU engine: pages of 64 positions, which callers assign to sequences.

A page of a layer is one row of bytes. For each KV head it stores the keys, then the values, unless
the values are part of the keys; the keys of the layer's indexer follow. The KV types of keys and
values may differ (kernels/cpu/attention/kv_pages.h).
"""

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.errors import UsageError
from sharpi.ops.attention_shape import AttentionShape
from sharpi.ops.cpu.recorder_tape import aligned_bytes
from sharpi.ops.recurrent import RecurrentShape, StateLayout
from sharpi.settings import F16_TYPES, KvType, KvTypes
from sharpi.system.memory import ReturnableMemory

_Bytes = npt.NDArray[np.uint8]
PAGE_POSITIONS = 64
KV_BLOCK = 32


class KvFormat(Struct, frozen=True):
    """The layout of a KV cache type: its bits per number, and how many 16-bit scales it has."""

    code: int  # the same in the native library and in the CUDA kernels
    bits: int
    scales_per_block: int = 0  # per 32 numbers: 1 for a scale, 2 for a scale and a minimum
    scales_per_row: int = 0  # per position and head

    @property
    def is_packed(self) -> bool:
        """True if numbers are quantised to fewer than 16 bits."""
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
    """Returns the numbers stored for one position's value in one head: a multiple of 16."""
    return (shape.value_dim + 15) // 16 * 16


def rotation_sizes(shape: AttentionShape, types: KvTypes) -> tuple[int, int]:
    """Returns the block sizes of the Hadamard transforms of keys and of values; 0 for none.

    Keys and values of packed types are transformed block by block before they are quantised. The
    size of a block, in numbers, is the largest power of two that divides the head size. If values
    are part of the keys, it divides both head sizes.
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
    indexed = KV_FORMATS[types.keys].row_bytes(shape.index.key_dim) if shape.index else 0
    return attention_bytes(shape, types) + PAGE_POSITIONS * indexed


def attention_bytes(shape: AttentionShape, types: KvTypes) -> int:
    """Returns the bytes of keys and values in a layer's page; an indexer's keys follow them."""
    row = KV_FORMATS[types.keys].row_bytes(shape.key_dim)
    if not shape.values_in_keys:
        row += KV_FORMATS[types.values].row_bytes(value_stride(shape))
    return PAGE_POSITIONS * shape.num_kv_heads * row


def reads_rows(shape: AttentionShape, types: KvTypes) -> bool:
    """Returns True if kernels can read the layer's keys row by row, as sparse attention wants."""
    return types.keys == "f16" and shape.values_in_keys and shape.key_dim % 16 == 0


def kv_bytes(
    shapes: Iterable[AttentionShape],
    num_positions: int,
    types: KvTypes = F16_TYPES,
    window_pages: int = 0,
) -> int:
    """Returns the bytes of a KV cache of `num_positions` positions, rounded up to full pages.

    A layer with a sliding window has at most `window_pages` pages; 0 means no limit.
    """
    pages = -(-num_positions // PAGE_POSITIONS)
    return sum(
        pages_of(pages, window_pages, has_window=s.window > 0) * _page_bytes(s, types)
        for s in shapes
    )


def pages_of(num_pages: int, window_pages: int, *, has_window: bool) -> int:
    """Returns the number of KV pages of a layer.

    It is `num_pages`, but at most `window_pages` for a layer with a sliding window. A
    `window_pages` of 0 means no limit.
    """
    return min(num_pages, window_pages) if has_window and window_pages else num_pages


def first_page_read(position: int, window: int) -> int:
    """Returns the index of the first page in the window of the token at `position`."""
    return max(0, position - window + 1) // PAGE_POSITIONS


def passing_pages(position: int, end: int, window: int) -> range:
    """Returns the page indices between `position` and the sliding window of the token at `end`.

    The token at `end` and later ones do not read these pages.
    """
    return range(-(-position // PAGE_POSITIONS), first_page_read(end, window))


def check_kv_types(shapes: Iterable[AttentionShape], types: KvTypes) -> None:
    """Raises UsageError if a head size is not a multiple of the block of its KV type."""
    for shape in shapes:
        of_values = types.keys if shape.values_in_keys else types.values
        of_index = shape.index.key_dim if shape.index else 0
        for kind, dim in (
            (types.keys, shape.key_dim), (of_values, shape.value_dim), (types.keys, of_index)
        ):  # fmt: skip
            if KV_FORMATS[kind].is_packed and dim % KV_BLOCK:
                raise UsageError(
                    f"a KV cache of {kind} has blocks of {KV_BLOCK} values, but this model's"
                    f" heads have {dim}; omit --kv-type"
                )


def supports_kv_types(shapes: Iterable[AttentionShape], types: KvTypes) -> bool:
    """Returns True if `check_kv_types` finds nothing wrong."""
    try:
        check_kv_types(shapes, types)
    except UsageError:
        return False
    return True


class KvCache:
    """The KV cache of all layers: `num_pages` pages per layer.

    The pages are zeroed, and the operating system commits them when they are written. The shapes
    and types must pass `check_kv_types`.
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
        """Returns a page's memory in the sliding-window layers to the operating system.

        The page then reads as zeros. A KV page may share a system page with the KV page before or
        after it. A shared system page is returned only if `is_before_free` or `is_after_free` says
        that the other KV page is free.
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
        """The bytes of one page, summed over all layers."""
        return sum(layer.shape[1] for layer in self.layers.values())

    @property
    def partial_bytes(self) -> int:
        """The bytes of one page, summed over the layers that `drop_windows` does not free."""
        return sum(layer.shape[1] for layer in self._layers_of_page(is_partial=True))

    def read_page(self, page: int, target: _Bytes, *, is_partial: bool = False) -> None:
        """Copies a page of all layers to `target`, (page_bytes,), one layer after the other.

        With `is_partial`, layers that `drop_windows` frees are left out: (partial_bytes,).
        """
        at = 0
        for layer in self._layers_of_page(is_partial=is_partial):
            target[at : at + layer.shape[1]] = layer[page]
            at += layer.shape[1]

    def write_page(self, page: int, source: _Bytes, *, is_partial: bool = False) -> None:
        """Writes to a page the bytes that `read_page` copied, in the same layers."""
        at = 0
        for layer in self._layers_of_page(is_partial=is_partial):
            layer[page] = source[at : at + layer.shape[1]]
            at += layer.shape[1]

    def _layers_of_page(self, *, is_partial: bool) -> list[_Bytes]:
        left_out = self._windows if is_partial else {}
        return [pages for layer, pages in self.layers.items() if layer not in left_out]

    @property
    def num_bytes(self) -> int:
        """The bytes of all pages of all layers."""
        return sum(layer.nbytes for layer in self.layers.values())


class StateMemory:
    """Memory for `num_states` recurrent states; the system commits it at the first write.

    One state holds what all recurrent layers keep for one sequence.
    """

    def __init__(self, shapes: Iterable[RecurrentShape], num_states: int) -> None:
        self.layout = StateLayout(shapes)
        size = num_states * self.layout.num_floats
        self._states = aligned_bytes(4 * size).view(np.float32).reshape(num_states, -1)
        # The address of each state, on a cache line.
        self.addresses = tuple(int(state.ctypes.data) for state in self._states)

    def copy(self, source: int, target: int) -> None:
        """Copies state `source` to state `target`."""
        self._states[target] = self._states[source]

    @property
    def state_bytes(self) -> int:
        """The bytes of one state."""
        return int(4 * self._states.shape[1])

    def read(self, state: int, target: npt.NDArray[np.uint8]) -> None:
        """Copies a state to `target`, (state_bytes,)."""
        target[:] = self._states[state].view(np.uint8)

    def write(self, state: int, source: npt.NDArray[np.uint8]) -> None:
        """Writes to a state the bytes that `read` copied."""
        self._states[state].view(np.uint8)[:] = source


Array = npt.NDArray[Any]


def hadamard(x: Array, block: int) -> Array:
    """Applies the Hadamard transform to each block of `block` numbers of x's last dimension.

    `block` is a power of two that divides this dimension. Applying the transform twice yields x.
    """
    matrix = np.ones((1, 1))
    while len(matrix) < block:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    blocks = x.reshape(*x.shape[:-1], -1, block)
    return np.asarray((blocks @ matrix / np.sqrt(block)).reshape(x.shape), np.float32)


# The last tokens of a prompt: their queries choose, and all their keys and values are kept.
KEEP_WINDOW = 32
# A key gets the largest weight among so many keys on either side, so that phrases are not split.
KEEP_POOL = 3
