"""Decides whether drafts are on by default, and whether the model's MTP head drafts."""

from typing import NamedTuple

from msgspec.structs import replace

from sharpi.errors import UsageError
from sharpi.gguf.metadata import Metadata
from sharpi.gguf.reader import GgufFile
from sharpi.model.config import ModelConfig, has_head, with_head
from sharpi.settings import RunConfig, SpeculationConfig


def known_to_pay(config: RunConfig, *, has_gpu: bool, is_shared: bool = False) -> RunConfig:
    """Returns the configuration, without drafts that are only on by default and may not pay here.

    Drafts that the user asked for stay. Drafts on a GPU have costs that the rule does not measure:
    greedy decoding no longer begins steps before the host knows their tokens, and the first check
    of each size captures a graph. On several machines (`is_shared`), a head would need every
    token's hidden states sent back. A trace records single tokens only.
    """
    speculation = config.speculation
    if not speculation.is_default:
        return config
    if has_gpu or config.experts.trace is not None:
        return replace(config, speculation=SpeculationConfig())
    if is_shared:
        kinds = tuple(kind for kind in speculation.kinds if kind != "mtp")
        return replace(config, speculation=replace(speculation, kinds=kinds))
    return config


def where_keys_are(config: RunConfig, *, has_gpu: bool, is_shared: bool = False) -> str | None:
    """Returns the end of a sentence on keys that Gemma 4's assistant cannot read, or None.

    The sentence begins with "Gemma 4's assistant reads keys that". None means that it can read all
    keys.
    """
    if is_shared:
        return "other machines keep"
    asked = {config.kv_type, config.key_type, config.value_type} - {None, "f16", "q8_0"}
    return "a GPU keeps in few bits" if has_gpu and asked else None


def why_no_head(config: RunConfig, *, is_follower: bool = False) -> str | None:
    """Returns the reason why an MTP head cannot run; None if it can."""
    if is_follower:
        return "the first machine has it"
    if config.kv_keep is not None:
        return "it needs the keys and values that --kv-keep drops"
    return None


class HeadChoice(NamedTuple):
    """A model with its MTP head if the head is to draft, and otherwise without it."""

    file: GgufFile  # includes the tensors of a head that has its own file
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
    """Decides whether an MTP head drafts, from the model's file or from --spec-draft-model.

    `why_not` is the reason if no head can run here; `keys_elsewhere` is the result of
    `where_keys_are`. Raises UsageError if a head was asked for by name and the file has none, or if
    the head of --spec-draft-model is for another model.
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
