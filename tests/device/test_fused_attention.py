"""Torch's attention, as a GPU uses it, computed on the CPU; skipped without torch."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from lazy_packages import OnUse, needs

from sharpi.device.device import AttendShape
from sharpi.device.torch_library import (
    TorchLibrary,
    efficient,
    flash,
    fused_attention,
    fused_kernel,
)
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS

torch = OnUse("torch")
pytestmark = needs("torch")


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


def plain(q: Any, k: Any, v: Any, scale: float) -> Any:
    """Attention on the CPU, which has none of the fused kernels."""
    from torch.nn.attention.bias import causal_lower_right

    bias, is_grouped = causal_lower_right(q.shape[2], k.shape[2]), q.shape[1] != k.shape[1]
    call = torch.nn.functional.scaled_dot_product_attention
    return call(q, k, v, attn_mask=bias, scale=scale, enable_gqa=is_grouped)


@pytest.mark.slow
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
    rng = np.random.default_rng(positions)
    q = rng.standard_normal((tokens, num_heads, key_dim), np.float32)
    table = rng.permutation(9)[: -(-positions // PAGE_POSITIONS)].astype(np.int32)
    pages = [
        rng.standard_normal((9, num_kv_heads, PAGE_POSITIONS, dim), np.float32).astype(np.float16)
        for dim in (key_dim, value_dim)
    ]
    out = torch.full((tokens, num_heads, value_dim), float("nan"))
    tensors = [torch.from_numpy(array) for array in (q, *pages, table)]
    fused_attention(plain, *tensors, out, positions, 0.2)
    k, v = (p[table].transpose(0, 2, 1, 3).reshape(-1, num_kv_heads, p.shape[3]) for p in pages)
    want = wanted(q.astype(np.float16), k[:positions], v[:positions], 0.2)
    assert np.linalg.norm(out.numpy() - want) < 1e-3 * np.linalg.norm(want)


@pytest.mark.parametrize(
    ("kernel", "kv_heads", "value_dim"), [(flash, 2, 64), (efficient, 8, 64), (efficient, 8, 32)]
)
def test_the_operations_are_called_as_torch_declares_them(
    kernel: Any, kv_heads: int, value_dim: int
) -> None:
    """Tensors without contents pass through torch's own checks of arguments and shapes."""
    shapes = ((8, 40, 64), (kv_heads, 100, 64), (kv_heads, 100, value_dim))
    q, k, v = (torch.empty((1, *shape), dtype=torch.half, device="meta") for shape in shapes)
    assert kernel(torch, q, k, v, 0.2).shape == (1, 8, 40, value_dim)


def shape(num_heads: int, num_kv_heads: int, key_dim: int, value_dim: int) -> AttendShape:
    return AttendShape(0, 0, num_heads, num_kv_heads, key_dim, value_dim, 0.1, PAGE_POSITIONS)


@pytest.mark.parametrize(
    ("sizes", "has_flash", "kernel"),
    [
        ((32, 4, 128, 128), True, "flash"),
        ((16, 16, 192, 128), True, "efficient"),
        ((64, 8, 192, 128), True, None),
        ((32, 4, 128, 128), False, None),
        ((16, 16, 64, 64), False, "efficient"),
        ((16, 16, 60, 60), True, None),
    ],
)
def test_no_kernel_rather_than_a_mask(
    sizes: tuple[int, int, int, int], has_flash: bool, kernel: str | None
) -> None:
    """Grouped heads need the flash kernel (sm_80), and that needs keys as wide as values."""
    asked: list[Any] = []
    cuda = SimpleNamespace(
        SDPAParams=lambda *values: asked.append(values),
        can_use_flash_attention=lambda params: has_flash,
        can_use_efficient_attention=lambda params: True,
    )
    found = SimpleNamespace(
        backends=SimpleNamespace(cuda=cuda), float16="f16", empty=lambda size, **_: size
    )
    assert fused_kernel(found, shape(*sizes)) == kernel
    if asked:
        assert asked[0][0] == (1, sizes[0], PAGE_POSITIONS, sizes[2])


class OnHost(TorchLibrary):
    """The library without a GPU; its spans hold arrays of f16."""

    def __init__(self) -> None:
        self._torch = torch

    def stream(self) -> Any:
        return nullcontext()

    def _tensor(self, span: Any, kind: str, shape: tuple[int, ...]) -> Any:
        assert kind == "<f2"
        return torch.from_numpy(span.array).view(shape)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(33, 5, 7, 9), (1, 1, 1, 1), (64, 4, 16, 32), (32, 1, 8, 3)])
def test_each_matrix_multiplies_its_own_rows(shape: tuple[int, int, int, int]) -> None:
    tokens, matrices, rows, columns = shape
    random = np.random.default_rng(2)
    x = random.normal(size=(tokens, matrices, columns)).astype(np.float16)
    weights = random.normal(size=(matrices, rows, columns)).astype(np.float16)
    out = np.full((tokens, matrices, rows), np.nan, np.float16)
    spans: list[Any] = [SimpleNamespace(array=each.reshape(-1)) for each in (x, weights, out)]
    OnHost().batched_matmul(spans[0], spans[1], spans[2], shape)
    wanted = np.einsum("tmc,mrc->tmr", x.astype(np.float64), weights.astype(np.float64))
    np.testing.assert_allclose(out, wanted, rtol=2**-10, atol=2e-5)
