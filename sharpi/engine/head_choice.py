"""Decides whether drafts are on by default, and whether an MTP head drafts.

llama.cpp's converter writes heads with files of their own with `--mtp`: they have the metadata of
the whole model, but only the layers for multi-token prediction. The embedding and the output
matrix, which the head shares with the model, are in both files; those of the model's file are used.

Gemma 4's assistant is such a file, too. It has layers, an embedding and an output of its own, and
reads the model's keys and values.
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from sharpi.errors import UsageError
from sharpi.gguf.file_kind import HEAD, kind_of
from sharpi.gguf.metadata import Metadata
from sharpi.gguf.reader import GgufFile, open_gguf
from sharpi.model.config import ASSISTANT, ModelConfig, assistant_prefix, has_head, with_head
from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.settings import RunConfig, SpeculationConfig

_OF_ASSISTANT = "gemma4"  # the architecture of models that have an assistant


class HeadChoice(NamedTuple):
    """A model with its MTP head if the head is to draft, and otherwise without it."""

    file: GgufFile  # includes the tensors of a head that has its own file
    model: ModelConfig
    config: RunConfig
    notes: tuple[str, ...] = ()


def choose_head(
    file: GgufFile,
    model: ModelConfig,
    config: RunConfig,
    *,
    has_gpu: bool,
    is_shared: bool = False,
    is_first: bool = True,
) -> HeadChoice:
    """Decides whether an MTP head drafts, from the model's file or from --spec-draft-model.

    The first of several machines has it. Raises UsageError if the head that was asked for is
    missing or of another model, and ModelFileError for a damaged file.
    """
    config = known_to_pay(config, has_gpu=has_gpu, is_shared=is_shared)
    why_not = None if is_first else "the first machine has it"
    if is_first and config.kv_keep is not None:
        why_not = "it needs the keys and values that --kv-keep drops"
    joined, metadata = _joined(file, model, config)
    if metadata is not None and _is_assistant(metadata):
        why_not = _why_no_keys(config, has_gpu=has_gpu, is_shared=is_shared) or why_not
    chosen, notes = _with_chosen(joined.file, joined.model, joined.config, why_not, metadata)
    if metadata is None or chosen.has_head:
        return HeadChoice(joined.file, chosen, joined.config, notes)
    return HeadChoice(file, model, joined.config, notes)


def known_to_pay(config: RunConfig, *, has_gpu: bool, is_shared: bool) -> RunConfig:
    """Returns the configuration without drafts only on by default that may not pay here."""
    speculation = config.speculation
    if not speculation.is_default:
        return config
    if has_gpu or config.experts.trace is not None:
        return replace(config, speculation=SpeculationConfig())
    if is_shared:
        kinds = tuple(kind for kind in speculation.kinds if kind != "mtp")
        return replace(config, speculation=replace(speculation, kinds=kinds))
    return config


def _why_no_keys(config: RunConfig, *, has_gpu: bool, is_shared: bool) -> str | None:
    """Returns why Gemma 4's assistant cannot read the model's keys; None if it can."""
    asked = {config.kv_type, config.key_type, config.value_type} - {None, "f16", "q8_0"}
    if is_shared:
        return "Gemma 4's assistant reads keys that other machines keep"
    if has_gpu and asked:
        return "Gemma 4's assistant reads keys that a GPU keeps in few bits"
    return None


def _with_chosen(
    file: GgufFile,
    model: ModelConfig,
    config: RunConfig,
    why_not: str | None,
    metadata: Metadata | None,
) -> tuple[ModelConfig, tuple[str, ...]]:
    speculation = config.speculation
    if "mtp" not in speculation.kinds or not speculation.is_on:
        return model, ()
    if not has_head(file, model):
        if speculation.is_auto and len(speculation.kinds) > 1:
            return model, ()
        raise UsageError(
            f"--spec-type mtp: {file.path.name} has no layer for multi-token prediction that sharpi"
            " knows; leave it to auto"
        )
    if config.experts.trace is not None:
        return model, ()
    if why_not is not None:
        return model, (f"the MTP head does not draft: {why_not}",)
    return with_head(file, model, metadata), ()


def _joined(
    file: GgufFile, model: ModelConfig, config: RunConfig
) -> tuple[HeadChoice, Metadata | None]:
    """Joins the head of --spec-draft-model to the model, with metadata if that file is one."""
    speculation = config.speculation
    if speculation.draft_model is None or not {"mtp", "draft"} & set(speculation.kinds):
        return HeadChoice(file, model, config), None
    head = open_gguf(speculation.draft_model)
    if kind_of(head) != HEAD:
        head.close()
        return HeadChoice(file, model, config), None
    if _is_assistant(head.metadata):
        width = head.metadata.get_int(f"{ASSISTANT}.embedding_length_out")
        fields = {
            "architecture": (model.architecture, _OF_ASSISTANT),
            "embedding_length": (model.hidden_size, width),
        }
        _check(file, head, fields)
        joined = file.with_all_of(head, assistant_prefix(model.num_layers))
    else:
        architecture = head.metadata.get_str("general.architecture")
        reader = HyperparameterReader(head.metadata, architecture)
        fields = {
            "architecture": (model.architecture, architecture),
            "layers": (model.num_layers, reader.num_layers),
            "embedding_length": (model.hidden_size, reader.hidden_size),
        }
        _check(file, head, fields)
        model = replace(model, num_predict_layers=reader.num_predict_layers)
        joined = file.with_tensors_of(head, f"blk.{model.num_layers}.")
    if not has_head(joined, model):
        raise UsageError(f"{head.path.name} holds a head of a kind that sharpi does not know")
    named = dict.fromkeys("mtp" if kind == "draft" else kind for kind in speculation.kinds)
    own = replace(config, speculation=replace(speculation, kinds=tuple(named), draft_model=None))
    return HeadChoice(joined, model, own), head.metadata


def _is_assistant(metadata: Metadata) -> bool:
    return metadata.find_printable("general.architecture") == ASSISTANT


def _check(file: GgufFile, head: GgufFile, fields: Mapping[str, tuple[object, object]]) -> None:
    """Raises UsageError if the head is for another model, with the first field that differs."""
    from sharpi.engine.draft_model import check_vocabulary

    for name, (own, other) in fields.items():
        if own != other:
            raise UsageError(
                f"{head.path.name} holds a head for another model than {file.path.name}: {name} is"
                f" {other} there, and {own} in the model"
            )
    check_vocabulary(file, head)
