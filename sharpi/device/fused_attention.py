"""Attention of many tokens with torch's fused kernels, called by name and without a mask.

If torch chose the kernel, it could fall back to one that stores float32 scores for all heads,
tokens and positions, and it would import modules of its compiler for the mask.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from sharpi.device.device import AttendShape

FusedKernel = Literal["flash", "efficient"]
# (q, k, v, scale) -> out, all (1, heads, tokens or positions, dim); the tokens are the last ones.
Attend: TypeAlias = Callable[[Any, Any, Any, float], Any]
_LOWER_RIGHT = 2  # torch.nn.attention.bias.CausalVariant: the tokens are the last of the positions
_MULTIPLE = 8  # kernels need head widths that are multiples of this


def fused_kernel(torch: Any, shape: AttendShape) -> FusedKernel | None:
    """Returns the name of torch's fused kernel for this shape on this GPU; None if none fits.

    The flash kernel needs sm_80 and key_dim equal to value_dim. The memory-efficient kernel does
    not support grouped-query attention.
    """
    s = shape
    if s.key_dim % _MULTIPLE or s.value_dim % _MULTIPLE:
        return None
    backend, is_grouped = torch.backends.cuda, s.num_heads != s.num_kv_heads
    heads = ((s.num_heads, s.key_dim), (s.num_kv_heads, s.key_dim), (s.num_kv_heads, s.value_dim))
    q, k, v = (
        torch.empty((1, count, s.page_positions, dim), dtype=torch.float16, device="cuda")
        for count, dim in heads
    )
    params = backend.SDPAParams(q, k, v, None, 0.0, False, is_grouped)
    if s.key_dim == s.value_dim and backend.can_use_flash_attention(params):
        return "flash"
    if not is_grouped and backend.can_use_efficient_attention(params):
        return "efficient"
    return None


def flash(torch: Any, q: Any, k: Any, v: Any, scale: float) -> Any:
    """Returns the causal attention of a sequence's last tokens, from torch's flash kernel.

    All tensors are f16 (1, heads, tokens or positions, dim).
    """
    call = torch.ops.aten._scaled_dot_product_flash_attention
    return call(q, k, v, 0.0, True, False, scale=scale)[0]


def efficient(torch: Any, q: Any, k: Any, v: Any, scale: float) -> Any:
    """Returns the causal attention of a sequence's last tokens, from the memory-efficient kernel.

    All tensors are f16 (1, heads, tokens or positions, dim).
    """
    call = torch.ops.aten._efficient_attention_forward
    transposed = (each.transpose(1, 2) for each in (q, k, v))
    out = call(*transposed, None, None, None, None, None, 0.0, _LOWER_RIGHT, False, scale=scale)
    return out[0].transpose(1, 2)


def fused_attention(
    attend: Attend,
    q: Any,
    keys: Any,
    values: Any,
    page_table: Any,
    out: Any,
    positions: int,
    scale: float,
) -> None:
    """Computes out = softmax(scale * q k^T) v with a causal mask, using `attend`.

    The queries belong to the last tokens of a sequence of `positions` tokens. q (tokens, heads,
    key_dim) and out (tokens, heads, value_dim) are float32, keys and values (pages, KV heads, page
    positions, dim) f16. `page_table` lists the sequence's pages in order.
    """
    k, v = (_in_order(pages, page_table, positions) for pages in (keys, values))
    queries = q.to(keys.dtype).transpose(0, 1).unsqueeze(0)
    mixed = attend(queries, k.unsqueeze(0), v.unsqueeze(0), scale)
    out.copy_(mixed.squeeze(0).transpose(0, 1))


def _in_order(pages: Any, page_table: Any, positions: int) -> Any:
    """Gathers a sequence's keys or values from its pages: (KV heads, positions, dim)."""
    chosen = pages.index_select(0, page_table).transpose(0, 1)
    return chosen.reshape(pages.shape[1], -1, pages.shape[3])[:, :positions]
