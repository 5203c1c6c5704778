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
    """Computes out (T, rows) = x (T, columns) weights[e]^T, e being the matrix of a token's row.

    `weights` is (matrices, rows, columns); `ends`, int32 (matrices,), has the row after the last
    one of each matrix. Rows after the last end get undefined values.
    """
    out.copy_(torch._grouped_mm(x, weights.transpose(-2, -1), offs=ends))
