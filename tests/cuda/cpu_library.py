"""The operations of a GPU's libraries in NumPy: products of f16 matrices, fused attention."""

import math

import numpy as np
import numpy.typing as npt
from cpu_memory import host_bytes

from sharpi.device.device import AttendShape
from sharpi.device.launch import Span
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS

Floats = npt.NDArray[np.float32]


def matmul(x: Span, weights: Span, out: Span, shape: tuple[int, int, int]) -> None:
    """Implements `Device.matmul`: f16 in, sums in 32 bits, f16 out."""
    tokens, rows, columns = shape
    left, right = _halves(x, tokens, columns), _halves(weights, rows, columns)
    with np.errstate(over="ignore"):
        _halves(out, tokens, rows)[:] = left.astype(np.float32) @ right.astype(np.float32).T


def batched_matmul(x: Span, weights: Span, out: Span, shape: tuple[int, int, int, int]) -> None:
    """Implements `Device.batched_matmul`: f16 in, sums in 32 bits, f16 out."""
    tokens, matrices, rows, columns = shape
    left = _halves(x, tokens, matrices * columns).reshape(tokens, matrices, columns)
    right = _halves(weights, matrices * rows, columns).reshape(matrices, rows, columns)
    sums = np.einsum("tmc,mrc->tmr", left.astype(np.float32), right.astype(np.float32))
    with np.errstate(over="ignore"):
        _halves(out, tokens, matrices * rows)[:] = sums.reshape(tokens, matrices * rows)


def from_bf16(words: npt.NDArray[np.uint16]) -> Floats:
    """Returns the values of numbers in bf16."""
    return (words.astype(np.uint32) << 16).view(np.float32)


def to_bf16(values: Floats) -> npt.NDArray[np.uint16]:
    """Rounds to bf16, ties to even; NaN stays NaN."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    rounded = (bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), 0x7FFF, rounded).astype(np.uint16)


def _words(span: Span, shape: tuple[int, ...]) -> npt.NDArray[np.uint16]:
    return host_bytes(span)[: 2 * math.prod(shape)].view(np.uint16).reshape(shape)


def attend(
    q: Span, keys: Span, values: Span, page_table: Span, out: Span, shape: AttendShape
) -> None:
    """Implements `Device.attend`: queries are rounded to f16, all else is in 32 bits."""
    s = shape
    table = host_bytes(page_table).view(np.int32)[: -(-s.positions // PAGE_POSITIONS)]
    k = _in_order(keys, table, s.num_kv_heads, s.key_dim)[:, : s.positions]
    v = _in_order(values, table, s.num_kv_heads, s.value_dim)[:, : s.positions]
    weights = _softmax(_scores(_queries(q, s), k, s))
    mixed = np.einsum("kgtp,kpd->tkgd", weights, v)  # (tokens, KV heads, heads of each, dim)
    host_bytes(out).view(np.float32)[: mixed.size] = mixed.reshape(-1)


def _queries(q: Span, s: AttendShape) -> Floats:
    flat = host_bytes(q).view(np.float32)[: s.tokens * s.num_heads * s.key_dim]
    heads = flat.reshape(s.tokens, s.num_kv_heads, -1, s.key_dim)
    return heads.astype(np.float16).astype(np.float32)


def _scores(queries: Floats, keys: Floats, s: AttendShape) -> Floats:
    """Returns scores (KV heads, heads of each, tokens, positions); -inf for later positions."""
    scores: Floats = np.einsum("tkgd,kpd->kgtp", queries, keys) * np.float32(s.scale)
    own = np.arange(s.positions - s.tokens, s.positions)
    scores[..., np.arange(s.positions) > own[:, None]] = -np.inf
    return scores


def _softmax(scores: Floats) -> Floats:
    weights: Floats = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


def _in_order(pages: Span, table: npt.NDArray[np.int32], num_heads: int, dim: int) -> Floats:
    """Returns a sequence's keys or values in order of position, (KV heads, positions, dim)."""
    halves = host_bytes(pages).view(np.float16).reshape(-1, num_heads, PAGE_POSITIONS, dim)[table]
    return halves.transpose(1, 0, 2, 3).reshape(num_heads, -1, dim).astype(np.float32)


def _halves(span: Span, rows: int, columns: int) -> npt.NDArray[np.float16]:
    return host_bytes(span)[: 2 * rows * columns].view(np.float16).reshape(rows, columns)
