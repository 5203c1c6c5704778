"""Adds a head for multi-token prediction (MTP) to a GGUF, so that tests need no trained one.

The head's block is a copy of the model's last layer with attention. Where a layer is attention or
experts, the head has both, as llama.cpp's converter joins them for Nemotron 3. Its projection
passes the embedding on and adds a little of the hidden state, so that drafts of a small random
model, whose next token mostly follows from the last one, are often right.
"""

import re
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFWriter
from gguf.constants import Keys
from requantise import copy_metadata, field_value, write

# What files have layer by layer.
_COUNTED = ("attention.head_count_kv", "feed_forward_length", "attention.recurrent_layers")
_ATTENTION = ("attn_q.weight", "attn_q_a.weight", "attn_qkv.weight")


def with_head(source: Path, target: Path, *, embedding_share: float = 6.0) -> Path:
    """Writes `source` to `target` with one head, and returns `target`."""
    reader = GGUFReader(source)
    architecture = field_value(reader.fields[Keys.General.ARCHITECTURE])
    writer = GGUFWriter(target, architecture)
    counts = {
        f"{architecture}.block_count": 0,
        f"{architecture}.nextn_predict_layers": 0,
    }
    for key in counts:
        if key in reader.fields:
            counts[key] = int(field_value(reader.fields.pop(key)))
    block_count, extra = counts.values()
    layers = block_count - extra
    counted = {
        key: field_value(field)
        for key, field in reader.fields.items()
        if key in (f"{architecture}.{each}" for each in _COUNTED)
    }
    arrays = {
        key: [*own[:layers], False if isinstance(own[0], bool) else max(own)]
        for key, own in counted.items()
        if isinstance(own, list)
    }
    copy_metadata(reader, writer, *arrays)
    for key, values in arrays.items():
        writer.add_array(key, values)
    writer.add_block_count(layers + 1)
    writer.add_uint32(f"{architecture}.nextn_predict_layers", 1)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    for tensor in tensors.values():
        writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
    copied, fed = _last_attention(set(tensors), layers), _last_experts(set(tensors), layers)
    for name, tensor in tensors.items():
        new = name.replace(f"blk.{copied}.", f"blk.{layers}.")
        if new == name and fed is not None:
            new = name.replace(f"blk.{fed}.attn_norm", f"blk.{layers}.post_attention_norm")
            new = new.replace(f"blk.{fed}.", f"blk.{layers}.")
        if new != name:
            writer.add_tensor(new, np.array(tensor.data), raw_dtype=tensor.tensor_type)
    hidden = int(tensors["token_embd.weight"].shape[0])
    for name, values in head_tensors(hidden, embedding_share).items():
        writer.add_tensor(f"blk.{layers}.nextn.{name}.weight", values)
    write(writer)
    return target


def _last_attention(names: set[str], layers: int) -> int:
    found = [
        layer
        for layer in range(layers)
        if any(f"blk.{layer}.{name}" in names for name in _ATTENTION)
        and not any(re.match(rf"blk\.{layer}\.(ssm|shortconv)", name) for name in names)
    ]
    return found[-1]


def _last_experts(names: set[str], layers: int) -> int | None:
    """Returns the last layer that has experts and nothing else, if there is one."""
    found = [
        layer
        for layer in range(layers)
        if f"blk.{layer}.ffn_gate_inp.weight" in names
        and not any(f"blk.{layer}.{name}" in names for name in ("ffn_norm.weight", *_ATTENTION))
        and f"blk.{layer}.post_attention_norm.weight" not in names
        and not any(re.match(rf"blk\.{layer}\.(ssm|shortconv)", name) for name in names)
    ]
    return found[-1] if found else None


def head_tensors(hidden: int, embedding_share: float) -> dict[str, np.ndarray]:
    """Returns the tensors of a head beside its block, by their short names."""
    random = np.random.default_rng(hidden)
    noise = random.standard_normal((hidden, 2 * hidden), np.float32) * hidden**-0.5
    projection = 0.2 * noise
    projection[:, :hidden] += embedding_share * np.eye(hidden, dtype=np.float32)
    norms = 1 + 0.1 * random.standard_normal((3, hidden), np.float32)
    return {
        "eh_proj": projection.astype(np.float16),
        "enorm": norms[0].astype(np.float32),
        "hnorm": norms[1].astype(np.float32),
        "shared_head_norm": norms[2].astype(np.float32),
    }
