"""Torch's grouped GEMM in bf16: many small matrices, each multiplied by its own rows."""

from typing import Any

# On other GPUs torch multiplies matrix by matrix, and blocks the host to read `ends`.
_LEAST_CAPABILITY, _BEYOND = 90, 120
_TRIED = 16  # rows and columns of a trial


def has_grouped_products(torch: Any, capability: int) -> bool:
    """Returns True if torch has a grouped GEMM for this GPU that does not block the host.

    Tries torch's private function once, because another version may lack it or change its
    arguments. `capability` is 90 for sm_90.
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
    """Computes out (T, rows) = x (T, columns) weights[e]^T, with one matrix e per range of rows.

    `weights` is (matrices, rows, columns), `ends` int32 (matrices,). Matrix e multiplies the rows
    of x from ends[e - 1], or 0 for the first matrix, up to ends[e]. Rows of `out` after the last
    end are undefined.
    """
    out.copy_(torch._grouped_mm(x, weights.transpose(-2, -1), offs=ends))
