"""Writes the head of a GGUF to a file of its own, as llama.cpp's converter does with `--mtp`.

Such a file has the keys and the vocabulary of the whole model, its embedding, its output matrix and
norm, and of its layers those for multi-token prediction alone (`conversion/base.py`: `mtp_only`).
The target then is a file without them, as `--no-mtp` writes it.
"""

from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFWriter
from gguf.constants import Keys
from requantise import copy_metadata, field_value, write

SHARED = ("token_embd.weight", "output_norm.weight", "output.weight")


def head_alone(source: Path, target: Path, **changes: int) -> Path:
    """Writes the head of `source` to `target`, with `changes` of the architecture's keys."""
    reader = GGUFReader(source)
    architecture = field_value(reader.fields[Keys.General.ARCHITECTURE])
    count = int(field_value(reader.fields[f"{architecture}.block_count"]))
    writer = GGUFWriter(target, architecture)
    copy_metadata(reader, writer, *(f"{architecture}.{key}" for key in changes))
    for key, value in changes.items():
        writer.add_uint32(f"{architecture}.{key}", value)
    for tensor in reader.tensors:
        if tensor.name in SHARED or tensor.name.startswith(f"blk.{count - 1}."):
            writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
    write(writer)
    return target
