"""Rewrites a GGUF in another quant type, so that tests need no files of every type.

Norms, biases and routers keep their type, as in llama.cpp; so does a matrix whose rows are no
multiple of the type's block.
"""

import argparse
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from gguf import GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, Keys
from gguf.gguf_reader import ReaderField, ReaderTensor
from gguf.quants import dequantize, quantize

KEPT_PARTS = ("_norm.", "ffn_gate_inp", "rope_freqs", ".bias")
WRITABLE_TYPES = (
    GGMLQuantizationType.F32,
    GGMLQuantizationType.F16,
    GGMLQuantizationType.BF16,
    GGMLQuantizationType.Q4_0,
    GGMLQuantizationType.Q4_1,
    GGMLQuantizationType.Q5_0,
    GGMLQuantizationType.Q5_1,
    GGMLQuantizationType.Q8_0,
)
_HEADER_KEYS = ("GGUF.", Keys.General.ARCHITECTURE, Keys.General.FILE_TYPE)


def requantise(
    source: Path,
    target: Path,
    quant_type: GGMLQuantizationType,
    others: Mapping[str, GGMLQuantizationType] = MappingProxyType({}),
) -> Path:
    """Writes `source` to `target` with its matrices in `quant_type`; returns `target`.

    `others` are the types of matrices whose names have these parts. Raises ValueError for a type
    that the gguf package cannot write.
    """
    for each in (quant_type, *others.values()):
        if each not in WRITABLE_TYPES:
            names = ", ".join(each.name for each in WRITABLE_TYPES)
            raise ValueError(f"gguf cannot quantise to {each.name}; it can to {names}")
    reader = _reader(source, source.stat().st_mtime_ns)
    writer = GGUFWriter(target, field_value(reader.fields[Keys.General.ARCHITECTURE]))
    copy_metadata(reader, writer)
    writer.add_file_type(_file_type(quant_type))
    for tensor in reader.tensors:
        other = (kind for part, kind in others.items() if part in tensor.name)
        _add(writer, tensor, next(other, quant_type))
    write(writer)
    return target


@lru_cache(maxsize=128)
def _reader(source: Path, modified_ns: int) -> GGUFReader:
    """Opens a file, once for all the types that it is written in."""
    return GGUFReader(source)


def add_keys(path: Path, keys: dict[str, int | float]) -> None:
    """Rewrites a file with more of its architecture's keys, whole numbers as uint32."""
    reader, target = GGUFReader(path), path.with_suffix(".added")
    architecture = field_value(reader.fields[Keys.General.ARCHITECTURE])
    writer = GGUFWriter(target, architecture)
    copy_metadata(reader, writer)
    writer.add_file_type(field_value(reader.fields[Keys.General.FILE_TYPE]))
    for name, value in keys.items():
        kind = GGUFValueType.UINT32 if isinstance(value, int) else GGUFValueType.FLOAT32
        writer.add_key_value(f"{architecture}.{name}", value, kind)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    write(writer)
    target.replace(path)


def copy_metadata(reader: GGUFReader, writer: GGUFWriter, *excluded: str) -> None:
    """Copies every key except those that the writer or its caller sets."""
    for name, field in reader.fields.items():
        if not name.startswith((*_HEADER_KEYS, *excluded)):
            element = field.types[1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(name, field_value(field), field.types[0], element)


def field_value(field: ReaderField):  # type: ignore[no-untyped-def]
    """A metadata value as Python's own type."""
    return field.contents()


def write(writer: GGUFWriter) -> None:
    """Writes everything added and closes the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add(writer: GGUFWriter, tensor: ReaderTensor, quant_type: GGMLQuantizationType) -> None:
    if _stays(tensor, quant_type):
        writer.add_tensor(tensor.name, tensor.data)
    else:
        blocks = quantize(dequantize(tensor.data, tensor.tensor_type), quant_type)
        writer.add_tensor(tensor.name, blocks, raw_dtype=quant_type)


def _stays(tensor: ReaderTensor, quant_type: GGMLQuantizationType) -> bool:
    block_size, _ = GGML_QUANT_SIZES[quant_type]
    is_small = len(tensor.shape) < 2 or any(part in tensor.name for part in KEPT_PARTS)
    return is_small or int(tensor.shape[0]) % block_size != 0


def _file_type(quant_type: GGMLQuantizationType) -> LlamaFileType:
    if quant_type == GGMLQuantizationType.F32:
        return LlamaFileType.ALL_F32
    return LlamaFileType[f"MOSTLY_{quant_type.name}"]


def main() -> None:
    """Parses the command line and rewrites one file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("quant_type", choices=[each.name for each in WRITABLE_TYPES])
    arguments = parser.parse_args()
    requantise(arguments.source, arguments.target, GGMLQuantizationType[arguments.quant_type])


if __name__ == "__main__":
    main()
