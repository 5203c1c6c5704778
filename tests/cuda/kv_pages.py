"""The KV cache's layout (kernels/cuda/attention/kv_cache.cuh) in NumPy, for tests."""

from typing import Any

import numpy as np
import numpy.typing as npt
from reference_kv_rounding import NONLINEAR_LEVELS, NORMAL_LEVELS

from sharpi.ops.cpu.kv_cache import KV_FORMATS
from sharpi.settings import KvType

PAGE = 64
PACKED: tuple[KvType, ...] = ("q5_1", "q5_0", "q4_0", "iq4_nl", "turbo3")
_BLOCK = 32
# The number that each code stands for, in units of the scale.
_LEVELS = {
    "q8_0": np.arange(-128, 128),
    "q5_1": np.arange(32),
    "q5_0": np.arange(-16, 16),
    "q4_0": np.arange(-8, 8),
    "iq4_nl": NONLINEAR_LEVELS,
    "turbo3": NORMAL_LEVELS,
}
Array = npt.NDArray[Any]


def page_bytes(kv_type: KvType, num_heads: int, dim: int) -> int:
    """Bytes of one page of one layer's keys or values."""
    return PAGE * num_heads * KV_FORMATS[kv_type].row_bytes(dim)


def pack_pages(
    rows: Array, kv_type: KvType, page_table: npt.NDArray[np.int32], num_pages: int
) -> npt.NDArray[np.uint8]:
    """Packs rows (positions, num_heads, dim) into pages; bytes that are not set are 0xff."""
    num_heads, dim = rows.shape[1:]
    pages = np.full((num_pages, page_bytes(kv_type, num_heads, dim)), 0xFF, np.uint8)
    for first in range(0, len(rows), PAGE):
        own = rows[first : first + PAGE].swapaxes(0, 1)
        parts = _parts(pages[page_table[first // PAGE]], num_heads, dim, kv_type)
        for part, stored in zip(parts, _stored(own, kv_type), strict=True):
            part[:, : own.shape[1]] = stored
    return pages


def unpack_row(
    page: npt.NDArray[np.uint8], at: int, num_heads: int, dim: int, kv_type: KvType
) -> Array:
    """Values (num_heads, dim) of one position of a page."""
    parts = [part[:, at] for part in _parts(page, num_heads, dim, kv_type)]
    return _values(parts, dim, kv_type)


def round_row(row: Array, kv_type: KvType) -> Array:
    """Rounds values (..., dim) as `pack_pages` does, to the nearest levels."""
    return _values(_stored(row, kv_type), row.shape[-1], kv_type)


def _parts(page: npt.NDArray[np.uint8], num_heads: int, dim: int, kind: KvType) -> list[Array]:
    """The parts of each head, (num_heads, 64, width): codes or numbers, scales."""
    heads, parts, at = page.reshape(num_heads, -1), [], 0
    for dtype, width in _widths(dim, kind):
        size = PAGE * width * np.dtype(dtype).itemsize
        own = heads[:, at : at + size].reshape(num_heads, PAGE, -1)
        parts.append(own.view(dtype))
        at += size
    return parts


def _widths(dim: int, kind: KvType) -> list[tuple[Any, int]]:
    if kind == "f16":
        return [(np.float16, dim)]
    low = [(np.uint8, dim * _low_bits(kind) // 8)]
    top = [(np.uint8, dim // 8)] if _has_top(kind) else []
    scales = [(np.float16, 1 if kind == "turbo3" else dim // _BLOCK)]
    return low + top + scales * (2 if kind == "q5_1" else 1)


def _low_bits(kind: KvType) -> int:
    return {"q8_0": 8, "turbo3": 2}.get(kind, 4)


def _has_top(kind: KvType) -> bool:
    return KV_FORMATS[kind].bits > _low_bits(kind)


def _stored(row: Array, kind: KvType) -> list[Array]:
    """What is stored of values (..., dim), part by part."""
    if kind == "f16":
        return [row.astype(np.float16)]
    levels, dim = np.asarray(_LEVELS[kind], np.float32), row.shape[-1]
    blocks = row.astype(np.float32).reshape(*row.shape[:-1], -1, dim if kind == "turbo3" else 32)
    minima = blocks.min(axis=-1, keepdims=True) if kind == "q5_1" else np.float32(0)
    peaks = np.abs(blocks - minima).max(axis=-1, keepdims=True)
    scales = (peaks / np.abs(levels[-1])).astype(np.float16)
    steps = (blocks - minima) / np.where(scales == 0, 1, scales.astype(np.float32))
    codes = np.searchsorted((levels[:-1] + levels[1:]) / 2, steps).reshape(row.shape)
    parts = [_joined(codes, _low_bits(kind)), scales[..., 0]]
    if kind == "q8_0":
        parts[0] = parts[0] ^ 0x80  # signed
    if _has_top(kind):
        parts.insert(1, np.packbits(codes >> _low_bits(kind), axis=-1, bitorder="little"))
    return parts + ([minima[..., 0].astype(np.float16)] if kind == "q5_1" else [])


def _joined(codes: Array, bits: int) -> Array:
    """The low bits of adjacent codes, in bytes."""
    each = 8 // bits
    fields = (codes & ((1 << bits) - 1)).reshape(*codes.shape[:-1], -1, each)
    return (fields << np.arange(each) * bits).sum(axis=-1).astype(np.uint8)


def _values(parts: list[Array], dim: int, kind: KvType) -> Array:
    if kind == "f16":
        return parts[0].astype(np.float32)
    bits, low = _low_bits(kind), parts[0] ^ 0x80 if kind == "q8_0" else parts[0]
    codes = (low[..., None] >> np.arange(8 // bits) * bits & ((1 << bits) - 1)).reshape(
        *low.shape[:-1], dim
    )
    scales = parts[-1]
    if _has_top(kind):
        codes = codes | np.unpackbits(parts[1], axis=-1, bitorder="little").astype(int) << bits
        scales = parts[2]
    levels = np.asarray(_LEVELS[kind], np.float32)[codes]
    found = levels * np.repeat(scales.astype(np.float32), dim // scales.shape[-1], axis=-1)
    return found + (np.repeat(parts[3].astype(np.float32), 32, axis=-1) if kind == "q5_1" else 0)
