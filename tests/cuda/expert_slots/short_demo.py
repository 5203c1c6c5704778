"""The first layers of the demo model: as many as slots need that look ahead by one layer."""

import atexit
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from gguf import GGUFReader, GGUFWriter
from requantise import copy_metadata, write

DEMO = Path(__file__).parents[3] / "models" / "demo" / "stories-moe.gguf"
LAYERS = 3  # a first one, a last one, and one with neighbours on both sides
_COUNT = "qwen3moe.block_count"


@cache
def short_demo() -> Path:
    """Writes the demo model with its first layers alone, once for all tests; returns the file."""
    folder = TemporaryDirectory(prefix="sharpi-")
    atexit.register(folder.cleanup)
    target = Path(folder.name) / DEMO.name
    reader, writer = GGUFReader(DEMO), GGUFWriter(target, "qwen3moe")
    copy_metadata(reader, writer, _COUNT)
    writer.add_uint32(_COUNT, LAYERS)
    writer.add_file_type(reader.fields["general.file_type"].contents())
    for tensor in reader.tensors:
        _, _, in_layer = tensor.name.partition("blk.")
        if not in_layer or int(in_layer.split(".")[0]) < LAYERS:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    write(writer)
    return target
