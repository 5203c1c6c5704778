"""Joins an MTP head that has a file of its own to the model's file.

llama.cpp's converter writes such files with `--mtp`: they have the metadata of the whole model, but
only the layers for multi-token prediction. The embedding and the output matrix, which the head
shares with the model, are in both files; those of the model's file are used.

Gemma 4's assistant is such a file, too. It has layers, an embedding and an output of its own, and
reads the model's keys and values.
"""

from typing import NamedTuple

from msgspec.structs import replace

from sharpi.engine.draft_model import check_vocabulary
from sharpi.errors import UsageError
from sharpi.gguf.file_kind import HEAD, kind_of
from sharpi.gguf.metadata import Metadata
from sharpi.gguf.reader import GgufFile, open_gguf
from sharpi.model.assistant_settings import ASSISTANT, assistant_prefix
from sharpi.model.config import ModelConfig, has_head
from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.settings import RunConfig

_OF_ASSISTANT = "gemma4"  # the architecture of models that have an assistant


class Joined(NamedTuple):
    """A model's file, config and run configuration, joined with a head, and the head's metadata."""

    file: GgufFile
    model: ModelConfig
    config: RunConfig
    metadata: Metadata
    is_assistant: bool = False


def join_head(file: GgufFile, model: ModelConfig, config: RunConfig) -> Joined:
    """Returns the model with the head of --spec-draft-model; unchanged if that file is no head.

    Raises UsageError if the head belongs to another model, ModelFileError for a damaged file.
    """
    speculation = config.speculation
    unchanged = Joined(file, model, config, file.metadata)
    if speculation.draft_model is None or not {"mtp", "draft"} & set(speculation.kinds):
        return unchanged
    head = open_gguf(speculation.draft_model)
    if kind_of(head) != HEAD:
        head.close()
        return unchanged
    is_assistant = head.metadata.find_printable("general.architecture") == ASSISTANT
    if is_assistant:
        _check_assistant(file, model, head)
        file = file.with_all_of(head, assistant_prefix(model.num_layers))
    else:
        reader = _check(file, model, head)
        model = replace(model, num_predict_layers=reader.num_predict_layers)
        file = file.with_tensors_of(head, f"blk.{model.num_layers}.")
    if not has_head(file, model):
        raise UsageError(f"{head.path.name} holds a head of a kind that sharpi does not know")
    named = dict.fromkeys("mtp" if kind == "draft" else kind for kind in speculation.kinds)
    return Joined(
        file,
        model,
        replace(config, speculation=replace(speculation, kinds=tuple(named), draft_model=None)),
        head.metadata,
        is_assistant,
    )


def _check(file: GgufFile, model: ModelConfig, head: GgufFile) -> HyperparameterReader:
    """Returns the head's metadata; raises UsageError if the head is for another model.

    The message has both values of the first field that differs.
    """
    architecture = head.metadata.get_str("general.architecture")
    _same(file, head, "architecture", model.architecture, architecture)
    reader = HyperparameterReader(head.metadata, architecture)
    _same(file, head, "layers", model.num_layers, reader.num_layers)
    _same(file, head, "embedding_length", model.hidden_size, reader.hidden_size)
    check_vocabulary(file, head)
    return reader


def _check_assistant(file: GgufFile, model: ModelConfig, head: GgufFile) -> None:
    """Raises UsageError if the assistant is for another model.

    The message has both values of the first field that differs.
    """
    _same(file, head, "architecture", model.architecture, _OF_ASSISTANT)
    width = head.metadata.get_int(f"{ASSISTANT}.embedding_length_out")
    _same(file, head, "embedding_length", model.hidden_size, width)
    check_vocabulary(file, head)


def _same(file: GgufFile, head: GgufFile, what: str, own: object, other: object) -> None:
    if own != other:
        raise UsageError(
            f"{head.path.name} holds a head for another model than {file.path.name}: {what} is"
            f" {other} there, and {own} in the model"
        )
