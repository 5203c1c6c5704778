"""Torch's grouped GEMM in bf16: many small matrices, each multiplied by its own rows."""

from typing import Any

# On other GPUs torch multiplies one by one, and waits for sizes.
_LEAST_CAPABILITY, _BEYOND = 90, 120
_TRIED = 16  # rows and columns of a trial


def has_grouped_products(torch: Any, capability: int) -> bool:
    """Returns True if this GPU's torch has a grouped GEMM that does not wait; tries it once.

    The function is private in torch, so another version may lack it or take other arguments.
    """
    if not _LEAST_CAPABILITY <= capability < _BEYOND:
        return False
    try:
        x = torch.ones((_TRIED, _TRIED), dtype=torch.bfloat16, device="cuda")
        ends = torch.full((1,), _TRIED, dtype=torch.int32, device="cuda")
        out = torch.empty_like(x)
        grouped_product(torch, x, x.unsqueeze(0), ends, out)
        return bool((out == _TRIED).all())
    except (AttributeError, TypeError, RuntimeError):
        return False


def grouped_product(torch: Any, x: Any, weights: Any, ends: Any, out: Any) -> None:
    """Computes out (T, rows) = x (T, columns) weights[e]^T, where each row has its own matrix e.

    `weights` is (matrices, rows, columns). Matrix e has the rows of x from ends[e - 1], or 0, up to
    ends[e]; `ends` is int32 (matrices,). Rows after the last end get undefined values.
    """
    out.copy_(torch._grouped_mm(x, weights.transpose(-2, -1), offs=ends))
