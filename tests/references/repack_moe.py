"""Turns a dense Llama GGUF into a mixture of experts that must answer as the dense one does.

The quantised rows of each feed-forward are cut into experts that are all used. The router's
weights are zero, so every expert weighs 1 / num_experts; down-projections are scaled by
num_experts to undo that, exactly, in the scales of their blocks.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, Keys
from gguf.gguf_reader import ReaderTensor
from numpy.typing import NDArray
from requantise import copy_metadata, write

Blocks = NDArray[np.uint8]
# How many F16 scales lead a block; each multiplies everything it holds.
SCALES_PER_BLOCK = {
    GGMLQuantizationType.Q4_0: 1,
    GGMLQuantizationType.Q4_1: 2,
    GGMLQuantizationType.Q5_0: 1,
    GGMLQuantizationType.Q5_1: 2,
    GGMLQuantizationType.Q8_0: 1,
}


def repack(source: Path, target: Path, num_experts: int = 8) -> Path:
    """Writes `source` as `num_experts` experts, all used; returns `target`.

    Raises ValueError where the rows cannot be cut or a scale cannot be multiplied exactly.
    """
    reader = GGUFReader(source)
    architecture = reader.fields[Keys.General.ARCHITECTURE].contents()
    width_key = Keys.LLM.FEED_FORWARD_LENGTH.format(arch=architecture)
    writer = GGUFWriter(target, architecture)
    copy_metadata(reader, writer, width_key)
    writer.add_feed_forward_length(reader.fields[width_key].contents() // num_experts)
    writer.add_file_type(reader.fields[Keys.General.FILE_TYPE].contents())
    writer.add_expert_count(num_experts)
    writer.add_expert_used_count(num_experts)
    for tensor in reader.tensors:
        for name, data in _expert_tensors(tensor, num_experts):
            quant_type = tensor.tensor_type if data.dtype == np.uint8 else None
            writer.add_tensor(name, data, raw_dtype=quant_type)
    write(writer)
    return target


def _expert_tensors(
    tensor: ReaderTensor, num_experts: int
) -> Iterator[tuple[str, NDArray[np.generic]]]:
    """The tensors that stand for one of the dense file's."""
    prefix, _, part = tensor.name.rpartition(".ffn_")
    if part == "gate.weight":
        hidden_size = int(tensor.shape[0])
        yield f"{prefix}.ffn_gate_inp.weight", np.zeros((num_experts, hidden_size), np.float32)
    if part in ("gate.weight", "up.weight"):
        yield f"{prefix}.ffn_{part[:-7]}_exps.weight", split_rows(tensor.data, num_experts)
    elif part == "down.weight":
        blocks = split_columns(tensor.data, tensor.tensor_type, num_experts)
        yield f"{prefix}.ffn_down_exps.weight", scale(blocks, tensor.tensor_type, num_experts)
    else:
        yield tensor.name, tensor.data


def split_rows(rows: Blocks, num_experts: int) -> Blocks:
    """(rows, bytes) to (experts, rows / experts, bytes)."""
    if len(rows) % num_experts:
        raise ValueError(f"{len(rows)} rows do not make {num_experts} equal experts")
    return rows.reshape(num_experts, -1, rows.shape[1])


def split_columns(rows: Blocks, quant_type: GGMLQuantizationType, num_experts: int) -> Blocks:
    """(rows, bytes) to (experts, rows, bytes / experts), cut between blocks."""
    _, block_bytes = GGML_QUANT_SIZES[quant_type]
    if rows.shape[1] % (num_experts * block_bytes):
        raise ValueError(f"{num_experts} experts would cut through blocks of {quant_type.name}")
    return np.ascontiguousarray(rows.reshape(len(rows), num_experts, -1).transpose(1, 0, 2))


def scale(blocks: Blocks, quant_type: GGMLQuantizationType, factor: int) -> Blocks:
    """Multiplies what the blocks hold by `factor`, through their F16 scales."""
    if quant_type not in SCALES_PER_BLOCK:
        names = ", ".join(each.name for each in SCALES_PER_BLOCK)
        raise ValueError(f"cannot scale blocks of {quant_type.name}; can those of {names}")
    _, block_bytes = GGML_QUANT_SIZES[quant_type]
    scales_bytes = 2 * SCALES_PER_BLOCK[quant_type]
    scaled = blocks.reshape(-1, block_bytes).copy()
    before = np.ascontiguousarray(scaled[:, :scales_bytes]).view(np.float16)
    exact = before.astype(np.float32) * factor
    with np.errstate(over="ignore"):
        after = exact.astype(np.float16)
    if not np.array_equal(after, exact):
        raise ValueError(f"a scale times {factor} is no F16 number")
    scaled[:, :scales_bytes] = after.view(np.uint8)
    return scaled.reshape(blocks.shape)


def main() -> None:
    """Parses the command line and repacks one file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--experts", type=int, default=8)
    arguments = parser.parse_args()
    repack(arguments.source, arguments.target, arguments.experts)


if __name__ == "__main__":
    main()
