"""Attention of many tokens by torch's fused kernels; torch chooses the best one for the GPU."""

from typing import Any


def fused_attention(
    torch: Any,
    q: Any,
    keys: Any,
    values: Any,
    page_table: Any,
    out: Any,
    positions: int,
    scale: float,
) -> None:
    """Computes out = softmax(scale * q k^T) v with a causal mask.

    The queries are those of the last of so many `positions`.
    q (tokens, heads, key_dim) and out (tokens, heads, value_dim) are float32, keys and values
    (pages, KV heads, page positions, dim) f16. `page_table` lists the sequence's pages in order.
    """
    k, v = (_in_order(pages, page_table, positions) for pages in (keys, values))
    bias = torch.nn.attention.bias.causal_lower_right(len(q), positions)
    mixed = torch.nn.functional.scaled_dot_product_attention(
        q.to(keys.dtype).transpose(0, 1).unsqueeze(0),
        k.unsqueeze(0),
        v.unsqueeze(0),
        attn_mask=bias,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[0],
    )
    out.copy_(mixed.squeeze(0).transpose(0, 1))


def _in_order(pages: Any, page_table: Any, positions: int) -> Any:
    """Gathers a sequence's keys or values from its pages: (KV heads, positions, dim)."""
    chosen = pages.index_select(0, page_table).transpose(0, 1)
    return chosen.reshape(pages.shape[1], -1, pages.shape[3])[:, :positions]
