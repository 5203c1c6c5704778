"""Torch's attention, as a GPU uses it, computed on the CPU; skipped without torch."""

import numpy as np
import pytest

from sharpi.device.fused_attention import fused_attention
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS

torch = pytest.importorskip("torch")


def wanted(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    """q (T, heads, dim), k and v (positions, KV heads, dim): plain, in float64."""
    group = q.shape[1] // k.shape[1]
    keys, values = (np.repeat(a, group, axis=1).astype(np.float64) for a in (k, v))
    scores = np.einsum("thd,phd->htp", q.astype(np.float64), keys) * scale
    own = np.arange(len(k) - len(q), len(k))
    scores[:, np.arange(len(k)) > own[:, None]] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("htp,phd->thd", weights, values)


@pytest.mark.parametrize(
    ("tokens", "positions", "num_heads", "num_kv_heads", "key_dim", "value_dim"),
    [
        (40, 40, 4, 2, 32, 32),
        (33, 200, 8, 2, 64, 64),
        (64, 130, 4, 4, 48, 32),
        (2, 65, 4, 1, 16, 16),
    ],
)
def test_paged_causal_attention(
    tokens: int, positions: int, num_heads: int, num_kv_heads: int, key_dim: int, value_dim: int
) -> None:
    import torch.nn.attention.bias

    rng = np.random.default_rng(positions)
    q = rng.standard_normal((tokens, num_heads, key_dim), np.float32)
    table = rng.permutation(9)[: -(-positions // PAGE_POSITIONS)].astype(np.int32)
    pages = [
        rng.standard_normal((9, num_kv_heads, PAGE_POSITIONS, dim), np.float32).astype(np.float16)
        for dim in (key_dim, value_dim)
    ]
    out = torch.full((tokens, num_heads, value_dim), float("nan"))
    tensors = [torch.from_numpy(array) for array in (q, *pages, table)]
    fused_attention(torch, *tensors, out, positions, 0.2)
    k, v = (p[table].transpose(0, 2, 1, 3).reshape(-1, num_kv_heads, p.shape[3]) for p in pages)
    want = wanted(q.astype(np.float16), k[:positions], v[:positions], 0.2)
    assert np.linalg.norm(out.numpy() - want) < 1e-3 * np.linalg.norm(want)
