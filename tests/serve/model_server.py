"""A server with the demo model and a chat template, so that its answers are real tokens."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from api_server import served
from gguf import GGUFReader, GGUFWriter
from gguf.constants import Keys
from requantise import copy_metadata, field_value, write
from scripted_host import TEMPLATE

from sharpi.engine.loader import load_engine
from sharpi.resources import demo_model
from sharpi.serve.app import AppSettings, build_app
from sharpi.serve.host.model_host import ModelHost, ModelHostSettings
from sharpi.settings import RunConfig

STORIES = "stories"


def with_template(folder: Path) -> Path:
    """Writes the demo model to `folder` with ChatML's template and its own end of turn."""
    reader, target = GGUFReader(demo_model()), folder / "stories.gguf"
    writer = GGUFWriter(target, field_value(reader.fields[Keys.General.ARCHITECTURE]))
    copy_metadata(reader, writer, Keys.Tokenizer.CHAT_TEMPLATE)
    writer.add_file_type(field_value(reader.fields[Keys.General.FILE_TYPE]))
    writer.add_chat_template(TEMPLATE.replace("<|im_end|>", "<|endoftext|>"))
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    write(writer)
    return target


@contextmanager
def stories_server(folder: Path) -> Iterator[tuple[ModelHost, str]]:
    """Yields the host and the URL of its server."""
    run = RunConfig(with_template(folder), context_size=1536, num_parallel=4)
    host = ModelHost(lambda: load_engine(run), ModelHostSettings(STORIES))
    host.start()
    try:
        with served(build_app(host, AppSettings(log=lambda line: None))) as url:
            yield host, url
    finally:
        host.close()
