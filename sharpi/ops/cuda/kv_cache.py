"""The KV cache on the GPU: pages of 64 positions, with separate arrays for keys and values.

Keys are (pages, KV heads, 64, key_dim), values (pages, KV heads, 64, value_dim), and may have
different types. In types smaller than f16, a head's part of a page has its quantised numbers, then
their scales (kernels/cuda/attention/kv_cache.cuh).
"""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from sharpi.device.device import Device, HostArray
from sharpi.device.launch import Span
from sharpi.errors import DeviceError
from sharpi.ops.attention_shape import AttentionShape
from sharpi.ops.cpu.kv_cache import (
    KV_BLOCK,
    KV_FORMATS,
    PAGE_POSITIONS,
    first_page_read,
    hadamard,
    passing_pages,
    rotation_sizes,
)
from sharpi.ops.cpu.program import IntArray
from sharpi.ops.cuda.gpu_limits import raise_unsupported
from sharpi.ops.cuda.gpu_weights import aligned
from sharpi.ops.cuda.launchers.attention.attention import MAX_VALUE_DIM
from sharpi.ops.interface import FloatArray
from sharpi.settings import F16_TYPES, KvType, KvTypes

# Frames beyond the pages that `WindowPages` keeps: a page is copied before the old one is dropped.
SPARE_FRAMES = 4


class WindowFrames(Struct):
    """The frames of the sliding-window layers `layers`, whose window is `window` positions.

    In a step of more than `batch_size` tokens, a page that no token after the step reads loses its
    frame as soon as a batch starts whose window is past the page.
    """

    layers: Collection[int]
    window: int
    num_frames: int
    batch_size: int
    _frames: dict[int, int] = field(default_factory=dict)  # by page
    _free: list[int] = field(default_factory=list)
    _passing: dict[int, int] = field(default_factory=dict)  # by page, its index in the page table

    def __post_init__(self) -> None:
        self._free = list(range(self.num_frames - 1, -1, -1))

    def find(self, page: int) -> int | None:
        """Returns the frame of a page; None if it has none."""
        return self._frames.get(page)

    def take(self, page: int) -> int:
        """Returns a page's frame, assigned if it had none; raises DeviceError if none is free."""
        self._passing.pop(page, None)
        return self._taken(page)

    def _taken(self, page: int) -> int:
        if page not in self._frames:
            if not self._free:
                raise DeviceError("all pages of sliding-window layers are in use; lower -b or -np")
            self._frames[page] = self._free.pop()
        return self._frames[page]

    def drop(self, page: int) -> None:
        """Frees the frame of a page, if it has one."""
        self._passing.pop(page, None)
        frame = self._frames.pop(page, None)
        if frame is not None:
            self._free.append(frame)

    def begin(self, position: int, end: int, pages: IntArray) -> None:
        """Prepares a step of tokens `position` to `end` of a sequence, whose pages are `pages`."""
        for page in tuple(self._passing):
            self.drop(page)
        if end - position > self.batch_size:
            indices = passing_pages(position, end, self.window)
            self._passing = {int(pages[index]): index for index in indices}

    def write(self, table: IntArray, position: int, end: int, pages: IntArray) -> None:
        """Writes to `table` the frames of all pages that tokens `position` up to `end` use.

        `pages` is the sequence's page table; both are (pages,). Other entries do not change.
        """
        first = first_page_read(position, self.window)
        for page in [page for page, index in self._passing.items() if index < first]:
            self.drop(page)
        last = -(-end // PAGE_POSITIONS)
        table[first:last] = [self._taken(page) for page in pages[first:last].tolist()]


class LayerKv(NamedTuple):
    """The pages of one layer; without `values` the values are part of the keys."""

    keys: Span
    values: Span | None = None


def types_of(shape: AttentionShape, types: KvTypes) -> KvTypes:
    """Returns a layer's types; values within keys have the type of keys."""
    return KvTypes(types.keys, types.keys) if shape.values_in_keys else types


def _parts(shape: AttentionShape, types: KvTypes) -> tuple[tuple[int, KvType], ...]:
    """Returns the (width, type) of keys, and of values unless they are part of the keys."""
    keys, values = (shape.key_dim, types.keys), (shape.value_dim, types.values)
    return (keys,) if shape.values_in_keys else (keys, values)


def _page_sizes(shape: AttentionShape, types: KvTypes) -> list[int]:
    """Returns the bytes of one page's keys, and of its values unless they are part of the keys."""
    heads = shape.num_kv_heads * PAGE_POSITIONS
    return [heads * KV_FORMATS[kind].row_bytes(dim) for dim, kind in _parts(shape, types)]


def layer_bytes(shape: AttentionShape, num_pages: int, types: KvTypes) -> int:
    """Returns the bytes of `num_pages` pages of one layer."""
    return sum(aligned(num_pages * size) for size in _page_sizes(shape, types))


def _check(shape: AttentionShape) -> None:
    if odd := [dim for dim, _ in _parts(shape, F16_TYPES) if dim % 2]:
        raise_unsupported(f"a KV cache with heads of {odd[0]} values")
    if shape.value_dim > MAX_VALUE_DIM:
        raise_unsupported(f"heads of {shape.value_dim} values")


def _unpacked(data: npt.NDArray[np.uint8], dim: int, kv_type: KvType, block: int) -> FloatArray:
    """Dequantises a page's keys or values, (heads, bytes), to floats (heads, 64, dim)."""
    if kv_type == "f16":
        return data.view(np.float16).reshape(len(data), PAGE_POSITIONS, dim).astype(np.float32)
    codes, scales = np.split(data, [PAGE_POSITIONS * dim], axis=1)
    blocks = codes.view(np.int8).reshape(len(data), PAGE_POSITIONS, dim // KV_BLOCK, KV_BLOCK)
    factors = scales.copy().view(np.float16).reshape(*blocks.shape[:3], 1)
    rows = np.multiply(blocks, factors, dtype=np.float32)
    return hadamard(rows.reshape(len(data), PAGE_POSITIONS, dim), block)


class GpuKvCache:
    """The KV pages of some layers, with a separate allocation for each layer.

    Callers assign pages to sequences. The shapes and types must pass `check_kv_types`. Layers with
    sliding windows only store pages that have a frame in `frames`. The constructor raises
    UnsupportedModelError for head sizes that the kernels do not support.
    """

    def __init__(
        self,
        device: Device,
        shapes: Iterable[AttentionShape],
        num_pages: int,
        types: KvTypes = F16_TYPES,
        frames: WindowFrames | None = None,
    ) -> None:
        self._device, self.frames, self.types, self.num_pages = device, frames, types, num_pages
        self._shapes = tuple(shapes)
        self.layers = {shape.layer: self._allocate(shape, num_pages) for shape in self._shapes}

    @property
    def num_bytes(self) -> int:
        """The bytes of all pages of all layers."""
        return self.bytes_of(self.num_pages)

    def bytes_of(self, num_pages: int) -> int:
        """Returns the bytes of `num_pages` pages of all layers."""
        pages = [(shape, self._pages_of(shape, num_pages)) for shape in self._shapes]
        return sum(layer_bytes(shape, count, self.types) for shape, count in pages)

    def _pages_of(self, shape: AttentionShape, num_pages: int) -> int:
        """Returns the pages for which a layer has memory: as many as frames, if it uses frames."""
        return self.frames.num_frames if self.frames and self.in_frames(shape.layer) else num_pages

    def in_frames(self, layer: int) -> bool:
        """Returns True if a layer only stores the pages of its sliding window, in frames."""
        return self.frames is not None and layer in self.frames.layers

    def _allocate(self, shape: AttentionShape, num_pages: int) -> LayerKv:
        _check(shape)
        num_pages = self._pages_of(shape, num_pages)
        memory = self._device.allocate(layer_bytes(shape, num_pages, self.types))
        sizes = [num_pages * size for size in _page_sizes(shape, self.types)]
        starts = (0, aligned(sizes[0]))
        return LayerKv(*(Span(memory, at, size) for at, size in zip(starts, sizes, strict=False)))

    def grow(self, num_pages: int) -> None:
        """Moves the pages to larger allocations, layer by layer; captured graphs become invalid.

        Only one layer at a time has both its old and its new allocation. Raises DeviceError if too
        little memory is free. All pages are then still valid, and the next call continues.
        """
        for shape in self._shapes:
            needed = self._pages_of(shape, num_pages) * _page_sizes(shape, self.types)[0]
            if self.layers[shape.layer].keys.num_bytes < needed:
                self._move(shape, num_pages)
        self.num_pages = num_pages

    def _move(self, shape: AttentionShape, num_pages: int) -> None:
        grown = self._allocate(shape, num_pages)
        for old, new in zip(self.layers[shape.layer], grown, strict=True):
            if old is not None and new is not None:
                self._device.copy(new.part(0, old.num_bytes), old)
        self.layers[shape.layer] = grown

    def copy_page(self, source: int, target: int) -> None:
        """Copies page `source` to page `target` in every layer that has it."""
        frame = to_frame = None
        if self.frames is not None:
            frame = self.frames.find(source)
            to_frame = None if frame is None else self.frames.take(target)
        spans = self._spans(source, frame), self._spans(target, to_frame)
        for from_span, to_span in zip(*spans, strict=True):
            self._device.copy(to_span, from_span)

    @property
    def page_bytes(self) -> int:
        """The bytes of one page, summed over all layers."""
        return sum(span.num_bytes for span in self._spans(0, 0))

    @property
    def partial_bytes(self) -> int:
        """The bytes of one page, summed over the layers that store all positions."""
        return sum(span.num_bytes for span in self._spans(0, None))

    def drop_windows(self, page: int, *, is_before_free: bool, is_after_free: bool) -> None:
        """Frees a page's frame in sliding-window layers.

        The other arguments are unused: here a page shares no memory with the pages beside it.
        """
        if self.frames is not None:
            self.frames.drop(page)

    def read_page(self, page: int, target: HostArray, *, is_partial: bool = False) -> None:
        """Copies a page of all layers to `target`, (page_bytes,), one layer after the other.

        With `is_partial`, sliding-window layers are left out: (partial_bytes,).
        """
        frame = None
        if self.frames is not None and not is_partial:
            frame = self.frames.find(page)
            assert frame is not None, "sliding-window layers have dropped this page"
        for span, part in self._slices(page, frame):
            self._device.download(span, target[part])

    def read_positions(self, layer: int, page: int, first: int, end: int) -> list[FloatArray]:
        """Returns the keys and values of positions `first` up to `end` in a page, as float32.

        Each array is (end - first, heads * dim). If the values are part of the keys, only the keys
        are returned. The types must be f16 or q8_0. Pages that a sliding-window layer has dropped
        read as zeros.
        """
        shape = next(each for each in self._shapes if each.layer == layer)
        index = self.frames.find(page) if self.frames and self.in_frames(layer) else page
        found, heads = [], shape.num_kv_heads
        kinds, transforms = _parts(shape, self.types), rotation_sizes(shape, self.types)
        spans = self._page(shape, index or 0)
        for span, (dim, kind), block in zip(spans, kinds, transforms, strict=False):
            data = np.zeros((heads, span.num_bytes // heads), np.uint8)
            if index is not None:
                self._device.download(span, data)
            rows = _unpacked(data, dim, kind, block)[:, first:end]
            found.append(rows.transpose(1, 0, 2).reshape(end - first, -1))
        return found

    def write_page(self, page: int, source: HostArray, *, is_partial: bool = False) -> None:
        """Writes to a page the bytes that `read_page` copied, in the same layers."""
        frame = None if self.frames is None or is_partial else self.frames.take(page)
        for span, part in self._slices(page, frame):
            self._device.upload(span, source[part])

    def _slices(self, page: int, frame: int | None) -> Iterator[tuple[Span, slice]]:
        """Yields the spans of a page, each with its place among the bytes of all of them."""
        at = 0
        for span in self._spans(page, frame):
            yield span, slice(at, at := at + span.num_bytes)

    def _spans(self, page: int, frame: int | None) -> Iterator[Span]:
        """Yields the spans of a page, layer by layer; without `frame` windows are left out."""
        for shape in self._shapes:
            index = frame if self.in_frames(shape.layer) else page
            if index is not None:
                yield from self._page(shape, index)

    def _page(self, shape: AttentionShape, index: int) -> Iterator[Span]:
        """Yields the keys and the values of one layer's page, by its index in memory."""
        layer, sizes = self.layers[shape.layer], _page_sizes(shape, self.types)
        for span, size in zip(layer, sizes, strict=False):
            assert span is not None
            yield span.part(index * size, size)
