"""Decides if drafts are on by default, and if the model's MTP head drafts."""

from typing import NamedTuple

from msgspec.structs import replace

from sharpi.config import RunConfig, SpeculationConfig
from sharpi.errors import UsageError
from sharpi.gguf.metadata import Metadata
from sharpi.gguf.reader import GgufFile
from sharpi.model.config import ModelConfig
from sharpi.model.head_config import has_head, with_head


def known_to_pay(config: RunConfig, *, is_on_cpu: bool) -> RunConfig:
    """Returns the configuration, without drafts that were not asked for and may not pay.

    Drafts have not been measured on a GPU or several machines, and a trace records single tokens.
    """
    is_measured = is_on_cpu and config.experts.trace is None
    if is_measured or not config.speculation.is_default:
        return config
    return replace(config, speculation=SpeculationConfig())


class HeadChoice(NamedTuple):
    """A model with its MTP head if the head is to draft, and without it otherwise."""

    file: GgufFile  # with the tensors of a head that has a file of its own
    model: ModelConfig
    config: RunConfig
    notes: tuple[str, ...]


def choose_head(
    file: GgufFile,
    model: ModelConfig,
    config: RunConfig,
    why_not: str | None = None,
    keys_elsewhere: str | None = None,
) -> HeadChoice:
    """Decides if an MTP head drafts: the one in the model's file or in --spec-draft-model.

    `why_not`: the reason if no head can run here; `keys_elsewhere`: what keeps the model's keys, if
    an assistant cannot read them here. Raises UsageError if a head was asked for by name
    and the file has none, or if the head of --spec-draft-model is for another model.
    """
    if config.speculation.draft_model is None:
        chosen, notes = _with_chosen(file, model, config, why_not, None)
        return HeadChoice(file, chosen, config, notes)
    from sharpi.engine.head_file import join_head

    joined = join_head(file, model, config)
    own = joined.config
    if keys_elsewhere is not None and joined.is_assistant:
        why_not = f"Gemma 4's assistant reads keys that {keys_elsewhere}"
    chosen, notes = _with_chosen(joined.file, joined.model, own, why_not, joined.metadata)
    if chosen.has_head:
        return HeadChoice(joined.file, chosen, own, notes)
    return HeadChoice(file, model, own, notes)


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
