"""Writes a qwen3moe GGUF of any size with random quant blocks, for measurements of speed.

The default shape is that of Qwen3-30B-A3B; the quant types are those of a Q4_K_M file, or one type
for all matrices. Vocabulary and chat template are the demo model's, with unused tokens added, so
that every command of sharpi runs the file. Each type has a pool of random blocks. A tensor is
copied from the pool, beginning at a random block, so that experts differ.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter

from sharpi.gguf.quant_types import QuantType, row_bytes
from sharpi.resources import demo_model

Bytes = npt.NDArray[np.uint8]
ARCHITECTURE = "qwen3moe"
POOL_BYTES = 32 << 20  # of each type, of which a file has two or three
_ALIGNMENT = 32
_UNUSED_TOKEN = 5  # a token's type, of tokenizer.ggml.token_type
_VOCABULARY_LISTS = ("tokens", "token_type", "scores")

# The byte offsets of a block's half-precision scales, and their sizes relative to the first: an
# offset is such that a type's values have a mean of zero.
_SCALES: dict[QuantType, tuple[tuple[int, float], ...]] = {
    QuantType.Q4_0: ((0, 1),),
    QuantType.Q4_1: ((0, 1), (2, -7.5)),
    QuantType.Q5_0: ((0, 1),),
    QuantType.Q5_1: ((0, 1), (2, -15.5)),
    QuantType.Q8_0: ((0, 1),),
    QuantType.Q2_K: ((80, 1), (82, 1.5)),
    QuantType.Q3_K: ((108, 1),),
    QuantType.Q4_K: ((0, 1), (2, 7.5)),
    QuantType.Q5_K: ((0, 1), (2, 15.5)),
    QuantType.Q6_K: ((208, 1),),
    QuantType.IQ4_NL: ((0, 1),),
    QuantType.IQ4_XS: ((0, 1),),
    QuantType.IQ2_XXS: ((0, 1),),
    QuantType.IQ2_XS: ((0, 1),),
    QuantType.IQ2_S: ((0, 1),),
    QuantType.IQ3_XXS: ((0, 1),),
    QuantType.IQ3_S: ((0, 1),),
    QuantType.IQ1_S: ((0, 1),),
    QuantType.TQ1_0: ((52, 1),),
    QuantType.TQ2_0: ((64, 1),),
    QuantType.Q1_0: ((0, 1),),
    QuantType.Q2_0: ((0, 1),),
}
# Deviations of random blocks of scale 1, for types that the gguf package does not decode: q of one
# bit is -1 or 1, of two bits -1 to 2.
_DEVIATIONS = {QuantType.Q1_0: 1.0, QuantType.Q2_0: 1.25**0.5}
_FLOAT_TYPES = (QuantType.F32, QuantType.F16, QuantType.BF16)
# The types that can be written: the gguf package has no name for Q2_0.
TYPES = (
    *(*_FLOAT_TYPES, *(t for t in _SCALES if t is not QuantType.Q2_0)),
    *(QuantType.MXFP4, QuantType.NVFP4, QuantType.IQ1_M),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model; the defaults are those of Qwen3-30B-A3B."""

    layers: int = 48
    hidden: int = 2048
    heads: int = 32
    kv_heads: int = 4
    head_dim: int = 128
    experts: int = 128
    used: int = 8
    expert_hidden: int = 768
    vocabulary: int = 151936
    # skew of routes: at 0.5, a quarter of 128 experts gets about two thirds of the routes
    skew: float = 0.0
    predict_layers: int = 0  # the number of further layers for multi-token prediction: 0 or 1


@dataclass(frozen=True, slots=True)
class Tensor:
    """The name, quant type and sizes of a tensor; the number of columns is last."""

    name: str
    quant_type: QuantType
    sizes: tuple[int, ...]
    fill: str = "blocks"  # blocks of a pool, ones, or a router
    skew: float = 0.0

    @property
    def num_bytes(self) -> int:
        """The size of the tensor in the file, in bytes."""
        rows = int(np.prod(self.sizes[:-1], dtype=np.int64))
        return rows * row_bytes(self.quant_type, self.sizes[-1])


def write_model(
    path: Path, shape: Shape, quant_type: QuantType | None = None, pool_bytes: int = POOL_BYTES
) -> int:
    """Writes the file and returns its size in bytes.

    `quant_type`: the type of all matrices; None for the types of a Q4_K_M file.
    """
    tensors = list(_tensors(shape, quant_type))
    writer = GGUFWriter(path, ARCHITECTURE)
    _add_sizes(writer, shape)
    _add_vocabulary(writer, shape.vocabulary)
    for tensor in tensors:
        size, kind = tensor.num_bytes, GGMLQuantizationType(int(tensor.quant_type))
        writer.add_tensor_info(tensor.name, tensor.sizes, np.dtype(np.float32), size, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("ab") as file:
        _pad(file)
        _write_tensors(file, tensors, min(pool_bytes, sum(t.num_bytes for t in tensors)))
        return file.tell()


def _tensors(s: Shape, only: QuantType | None) -> Iterator[Tensor]:
    narrow, wide = only or QuantType.Q4_K, only or QuantType.Q6_K
    yield Tensor("token_embd.weight", narrow, (s.vocabulary, s.hidden))
    yield Tensor("output.weight", wide, (s.vocabulary, s.hidden))
    yield _ones("output_norm.weight", s.hidden)
    for layer in range(s.layers + s.predict_layers):
        yield from _layer(s, f"blk.{layer}.", narrow, wide if layer % 2 == 0 else narrow)
        if layer >= s.layers:
            yield from _head(s, f"blk.{layer}.nextn.", narrow)


def _head(s: Shape, prefix: str, narrow: QuantType) -> Iterator[Tensor]:
    """Yields the tensors that only a layer for multi-token prediction has."""
    yield Tensor(f"{prefix}eh_proj.weight", narrow, (s.hidden, 2 * s.hidden))
    for name in ("enorm", "hnorm", "shared_head_norm"):
        yield _ones(f"{prefix}{name}.weight", s.hidden)


def _layer(s: Shape, prefix: str, narrow: QuantType, wide: QuantType) -> Iterator[Tensor]:
    q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
    yield _ones(f"{prefix}attn_norm.weight", s.hidden)
    yield Tensor(f"{prefix}attn_q.weight", narrow, (q, s.hidden))
    yield Tensor(f"{prefix}attn_k.weight", narrow, (kv, s.hidden))
    yield Tensor(f"{prefix}attn_v.weight", wide, (kv, s.hidden))
    yield _ones(f"{prefix}attn_q_norm.weight", s.head_dim)
    yield _ones(f"{prefix}attn_k_norm.weight", s.head_dim)
    yield Tensor(f"{prefix}attn_output.weight", narrow, (s.hidden, q))
    yield _ones(f"{prefix}ffn_norm.weight", s.hidden)
    router = (s.experts, s.hidden)
    yield Tensor(f"{prefix}ffn_gate_inp.weight", QuantType.F32, router, "router", s.skew)
    up, down = (s.experts, s.expert_hidden, s.hidden), (s.experts, s.hidden, s.expert_hidden)
    yield Tensor(f"{prefix}ffn_gate_exps.weight", narrow, up)
    yield Tensor(f"{prefix}ffn_up_exps.weight", narrow, up)
    yield Tensor(f"{prefix}ffn_down_exps.weight", wide, down)


def _ones(name: str, size: int) -> Tensor:
    return Tensor(name, QuantType.F32, (size,), "ones")


def _add_sizes(writer: GGUFWriter, s: Shape) -> None:
    writer.add_name("synthetic mixture of experts")
    writer.add_block_count(s.layers + s.predict_layers)
    if s.predict_layers:
        writer.add_uint32(f"{ARCHITECTURE}.nextn_predict_layers", s.predict_layers)
    writer.add_context_length(40960)
    writer.add_embedding_length(s.hidden)
    writer.add_feed_forward_length(3 * s.hidden)
    writer.add_head_count(s.heads)
    writer.add_head_count_kv(s.kv_heads)
    writer.add_key_length(s.head_dim)
    writer.add_value_length(s.head_dim)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_expert_count(s.experts)
    writer.add_expert_used_count(s.used)
    writer.add_expert_feed_forward_length(s.expert_hidden)


def _add_vocabulary(writer: GGUFWriter, size: int) -> None:
    """Adds the demo model's tokenizer metadata, with lists extended to `size` tokens."""
    for name, field in GGUFReader(demo_model()).fields.items():
        if not name.startswith("tokenizer."):
            continue
        value: Any = field.contents()
        if name.rpartition(".")[2] in _VOCABULARY_LISTS:
            value = _filled_up(name.rpartition(".")[2], value, size)
        element = field.types[1] if len(field.types) > 1 else None
        writer.add_key_value(name, value, field.types[0], element)


def _filled_up(kind: str, values: list[Any], size: int) -> list[Any]:
    if len(values) > size:
        raise ValueError(f"the vocabulary has {len(values)} tokens, not {size}")
    numbers = range(len(values), size)
    if kind == "tokens":
        return values + [f"[unused {number}]" for number in numbers]
    return values + [_UNUSED_TOKEN if kind == "token_type" else 0.0 for _ in numbers]


def _write_tensors(file: BinaryIO, tensors: list[Tensor], pool_bytes: int) -> None:
    random, pools = np.random.default_rng(0), dict[QuantType, memoryview]()
    for tensor in tensors:
        kind = tensor.quant_type
        if tensor.fill == "blocks":
            if kind not in pools:
                pools[kind] = block_pool(kind, tensor.sizes[-1], pool_bytes).data
            _write_stretch(file, pools[kind], tensor, random)
        else:
            file.write(_floats(tensor, random).tobytes())
        _pad(file)


def _write_stretch(
    file: BinaryIO, pool: memoryview, tensor: Tensor, random: np.random.Generator
) -> None:
    """Writes a tensor's bytes from the pool, beginning at a random block and wrapping around."""
    block = tensor.quant_type.block_bytes
    at, left = int(random.integers(0, len(pool) // block)) * block, tensor.num_bytes
    while left:
        left -= file.write(pool[at : at + left])
        at = 0


def _floats(tensor: Tensor, random: np.random.Generator) -> npt.NDArray[np.float32]:
    if tensor.fill == "ones":
        return np.ones(tensor.sizes, np.float32)
    values = random.standard_normal(tensor.sizes, np.float32)
    if tensor.skew:  # larger rows have larger logits and are chosen more often
        values *= np.exp(tensor.skew * random.standard_normal((tensor.sizes[0], 1), np.float32))
    return values * np.float32(tensor.sizes[-1] ** -0.5)


def block_pool(quant_type: QuantType, columns: int, num_bytes: int) -> Bytes:
    """Returns random blocks whose values have the standard deviation 1 / sqrt(`columns`).

    The number of blocks is the largest prime that fits into `num_bytes`. As a prime, it is no
    multiple of an expert's blocks, so that experts do not repeat.
    """
    count = _odd_count(max(1, num_bytes // quant_type.block_bytes))
    deviation = columns**-0.5
    if quant_type in _FLOAT_TYPES:
        return _random_floats(quant_type, count, deviation)
    bytes_ = np.frombuffer(
        np.random.default_rng(int(quant_type)).bytes(count * quant_type.block_bytes), np.uint8
    )
    blocks = bytes_.reshape(count, quant_type.block_bytes).copy()
    if quant_type is QuantType.TQ2_0:  # codes of two bits: 3 becomes 1, so that the mean is zero
        codes = blocks[:, :64]
        codes &= ~((codes & codes >> 1 & 0x55) << 1)
    _scale(quant_type, blocks, 1.0)
    _scale(quant_type, blocks, deviation / _deviation(quant_type, blocks[:4096]))
    return blocks.reshape(-1)


def _deviation(quant_type: QuantType, blocks: Bytes) -> float:
    if quant_type in _DEVIATIONS:
        return _DEVIATIONS[quant_type]
    return float(gguf.quants.dequantize(blocks, GGMLQuantizationType(int(quant_type))).std())


def _odd_count(most: int) -> int:
    """Returns the largest prime up to `most`, or 1."""
    return next((n for n in range(most, 1, -1) if all(n % d for d in range(2, int(n**0.5) + 1))), 1)


def _scale(quant_type: QuantType, blocks: Bytes, scale: float) -> None:
    if quant_type is QuantType.MXFP4:  # a power of two whose bias is 127
        blocks[:, 0] = 127 if scale == 1 else 127 + round(np.log2(scale))
    if quant_type is QuantType.NVFP4:  # the nearest power of two; 7 is the bias
        blocks[:, :4] = max(4, (7 + round(np.log2(scale))) << 3)
    if quant_type is QuantType.IQ1_M:  # the top four bits of four words
        bits = int(np.float16(scale).view(np.uint16))
        for i in range(4):
            blocks[:, 49 + 2 * i] = blocks[:, 49 + 2 * i] & 15 | (bits >> 4 * i & 15) << 4
    for at, factor in _SCALES.get(quant_type, ()):
        blocks[:, at : at + 2] = np.frombuffer(np.float16(scale * factor).tobytes(), np.uint8)


def _random_floats(quant_type: QuantType, count: int, deviation: float) -> Bytes:
    values = np.random.default_rng(int(quant_type)).standard_normal(count, np.float32) * deviation
    kind = GGMLQuantizationType(int(quant_type))
    return np.ascontiguousarray(gguf.quants.quantize(values[None], kind)).view(np.uint8).reshape(-1)


def _pad(file: BinaryIO) -> None:
    file.write(bytes(-file.tell() % _ALIGNMENT))


def main() -> None:
    """Parses the command line and writes one file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--type", choices=[t.name for t in TYPES], help="of all matrices")
    for field in fields(Shape):
        flag = f"--{field.name.replace('_', '-')}"
        kind = type(field.default)
        parser.add_argument(flag, type=kind, default=field.default, metavar="N")
    options = vars(parser.parse_args())
    path, name = options.pop("path"), options.pop("type")
    start = time.perf_counter()
    try:
        size = write_model(path, Shape(**options), QuantType[name] if name else None)
    except ValueError as error:
        parser.error(str(error))
    seconds = time.perf_counter() - start
    print(f"{size / 1e9:.2f} GB in {seconds:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
