"""Writes models of one layer with latent attention, of any number of heads."""

from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFWriter
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize
from requantise import copy_metadata, write

REFERENCES = Path(__file__).parents[1] / "references" / "data"
PLAIN, VALUE, LATENT, HIDDEN = 32, 32, 64, 64


def write_latent(target: Path, heads: int, rotated: int = 16) -> Path:
    """Writes a model whose heads have 32 plain and some rotated values, and a latent row of 64."""
    source = REFERENCES / "deepseek2-groups.gguf"
    reader, writer = GGUFReader(source), GGUFWriter(target, "deepseek2")
    shapes, sizes = _shapes(heads, rotated), _sizes(heads, rotated)
    copy_metadata(reader, writer, *sizes)
    for key, value in sizes.items():
        writer.add_uint32(key, value)
    random = np.random.default_rng(0)
    for tensor in reader.tensors:
        shape = shapes.get(tensor.name.removeprefix("blk.0.").removesuffix(".weight"))
        if shape is None:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        elif len(shape) == 1:
            writer.add_tensor(tensor.name, np.ones(shape, np.float32))
        else:
            values = random.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[-1]))
            kind = GGMLQuantizationType.F16 if shape[-1] % 32 else GGMLQuantizationType.Q8_0
            writer.add_tensor(tensor.name, quantize(values, kind), raw_dtype=kind)
    write(writer)
    return target


def _shapes(heads: int, rotated: int) -> dict[str, tuple[int, ...]]:
    return {
        "attn_kv_a_norm": (LATENT,),
        "attn_kv_a_mqa": (LATENT + rotated, HIDDEN),
        "attn_k_b": (heads, LATENT, PLAIN),
        "attn_v_b": (heads, VALUE, LATENT),
        "attn_output": (HIDDEN, heads * VALUE),
        "attn_q_b": (heads * (PLAIN + rotated), 24),
    }


def _sizes(heads: int, rotated: int) -> dict[str, int]:
    in_attention = {
        "head_count": heads,
        "key_length": LATENT + rotated,
        "value_length": LATENT,
        "kv_lora_rank": LATENT,
        "key_length_mla": PLAIN + rotated,
        "value_length_mla": VALUE,
    }
    sizes = {f"deepseek2.attention.{key}": value for key, value in in_attention.items()}
    return sizes | {"deepseek2.rope.dimension_count": rotated}
