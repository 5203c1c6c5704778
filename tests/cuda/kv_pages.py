"""The KV cache's layout (kernels/cuda/attention/kv_cache.cuh) in NumPy, for tests."""

from typing import Any

import numpy as np
import numpy.typing as npt

from sharpi.config import KvType

PAGE = 64


def page_bytes(kv_type: KvType, num_heads: int, dim: int) -> int:
    """Bytes of one page of one layer's keys or values."""
    return PAGE * num_heads * (2 * dim if kv_type == "f16" else dim + dim // 16)


def pack_pages(
    rows: npt.NDArray[Any], kv_type: KvType, page_table: npt.NDArray[np.int32], num_pages: int
) -> npt.NDArray[np.uint8]:
    """Packs rows (positions, num_heads, dim) into pages; bytes that are not set are 0xff."""
    num_heads, dim = rows.shape[1:]
    pages = np.full((num_pages, page_bytes(kv_type, num_heads, dim)), 0xFF, np.uint8)
    for position, row in enumerate(rows):
        page = pages[page_table[position // PAGE]].reshape(num_heads, -1)
        _store(page, position % PAGE, row, kv_type)
    return pages


def unpack_row(
    page: npt.NDArray[np.uint8], at: int, num_heads: int, dim: int, kv_type: KvType
) -> npt.NDArray[Any]:
    """Values (num_heads, dim) of one position of a page."""
    heads = page.reshape(num_heads, -1)
    if kv_type == "f16":
        return heads.view(np.float16).reshape(num_heads, PAGE, dim)[:, at].astype(np.float32)
    q = heads[:, : PAGE * dim].view(np.int8).reshape(num_heads, PAGE, dim)[:, at]
    return q * np.repeat(_scales(heads, dim)[:, at].astype(np.float32), 32, axis=-1)


def round_row(row: npt.NDArray[Any], kv_type: KvType) -> npt.NDArray[Any]:
    """Rounds values (..., dim) as the KV cache does."""
    if kv_type == "f16":
        return row.astype(np.float16).astype(np.float32)
    q, scale = _quantise(row)
    return (q * scale.astype(np.float32)).reshape(row.shape)


def _store(heads: npt.NDArray[np.uint8], at: int, row: npt.NDArray[Any], kv_type: KvType) -> None:
    num_heads, dim = row.shape
    if kv_type == "f16":
        heads.view(np.float16).reshape(num_heads, PAGE, dim)[:, at] = row
        return
    q, scale = _quantise(row)
    heads[:, at * dim : (at + 1) * dim] = q.reshape(num_heads, dim).view(np.uint8)
    _scales(heads, dim)[:, at] = scale[..., 0]


def _scales(heads: npt.NDArray[np.uint8], dim: int) -> npt.NDArray[Any]:
    return heads[:, PAGE * dim :].view(np.float16).reshape(len(heads), PAGE, dim // 32)


def _quantise(row: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int8], npt.NDArray[Any]]:
    blocks = row.astype(np.float32).reshape(*row.shape[:-1], -1, 32)
    scale = np.abs(blocks).max(axis=-1, keepdims=True) / np.float32(127)
    q = np.rint(blocks / np.where(scale == 0, 1, scale)).astype(np.int8)
    return q, scale.astype(np.float16)
