"""An MTP head over a Qwen3 MoE block in plain NumPy, from nothing but the published equations.

h' = M [RMSNorm(Emb(t_{i+1})); RMSNorm(h_i)] (DeepSeek-V3, arXiv 2412.19437, equation 21), then the
block (22) and the output head (23). The norms and the block's arithmetic are spelled out here,
so that it shares no code with sharpi.
"""

from pathlib import Path

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from requantise import field_value

EPSILON = 1e-6


def plain_head(path: Path, next_ids: list[int], hidden: np.ndarray) -> np.ndarray:
    """Returns the logits (tokens, vocabulary) of all tokens; `hidden` (tokens, hidden)."""
    reader = GGUFReader(path)
    weights = {t.name: dequantize(t.data, t.tensor_type) for t in reader.tensors}
    layer = _value(reader, "block_count") - 1
    of = {name.removeprefix(f"blk.{layer}."): each for name, each in weights.items()}
    embedding = weights["token_embd.weight"]
    epsilon = _value(reader, "attention.layer_norm_rms_epsilon")
    token = _norm(embedding[next_ids], of["nextn.enorm.weight"], epsilon)
    both = np.concatenate([token, _norm(hidden, of["nextn.hnorm.weight"], epsilon)], axis=1)
    x = both @ of["nextn.eh_proj.weight"].T
    x = x + _attention(reader, of, _norm(x, of["attn_norm.weight"], epsilon), epsilon)
    x = x + _experts(reader, of, _norm(x, of["ffn_norm.weight"], epsilon))
    out = weights.get("output.weight", embedding)
    return _norm(x, of["nextn.shared_head_norm.weight"], epsilon) @ out.T


def _value(reader: GGUFReader, key: str):  # type: ignore[no-untyped-def]
    architecture = field_value(reader.fields["general.architecture"])
    return field_value(reader.fields[f"{architecture}.{key}"])


def _norm(x: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight


def _attention(
    reader: GGUFReader, of: dict[str, np.ndarray], h: np.ndarray, epsilon: float
) -> np.ndarray:
    heads, kv_heads = (_value(reader, f"attention.head_count{s}") for s in ("", "_kv"))
    dim, base = _value(reader, "attention.key_length"), _value(reader, "rope.freq_base")
    out = []
    q, k, v = (
        (h @ of[f"attn_{name}.weight"].T).reshape(len(h), -1, dim) for name in ("q", "k", "v")
    )
    q = _rotated(_norm(q, of["attn_q_norm.weight"], epsilon), base)
    k = _rotated(_norm(k, of["attn_k_norm.weight"], epsilon), base)
    for head in range(heads):
        of_keys = head // (heads // kv_heads)
        scores = q[:, head] @ k[:, of_keys].T / np.sqrt(dim)
        scores[np.triu_indices(len(h), 1)] = -np.inf
        out.append(_softmax(scores) @ v[:, of_keys])
    return np.concatenate(out, axis=1) @ of["attn_output.weight"].T


def _rotated(x: np.ndarray, base: float) -> np.ndarray:
    half = x.shape[-1] // 2
    angles = np.arange(len(x))[:, None] * base ** (-np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _experts(reader: GGUFReader, of: dict[str, np.ndarray], h: np.ndarray) -> np.ndarray:
    chances = _softmax(h @ of["ffn_gate_inp.weight"].T)
    used = _value(reader, "expert_used_count")
    out = np.zeros_like(h)
    for i, row in enumerate(h):
        chosen = np.argsort(-chances[i])[:used]
        for expert in chosen:
            gate, up, down = (of[f"ffn_{n}_exps.weight"][expert] for n in ("gate", "up", "down"))
            a = gate @ row
            share = chances[i, expert] / chances[i, chosen].sum()
            out[i] += share * (down @ (a / (1 + np.exp(-a)) * (up @ row)))
    return out
