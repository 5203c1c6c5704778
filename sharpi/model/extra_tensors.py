"""Describes the tensors of a file that sharpi does not use, in one line per kind."""

from collections.abc import Sequence

from sharpi.gguf.summary import layer_of

_PROJECTIONS = ("v.", "a.", "mm.", "resampler.")
_INDEXER = ".indexer."  # of sparse attention, which is not used: all positions are attended to
_SHOWN = 4


def notes_on_extra(names: Sequence[str], num_layers: int) -> tuple[str, ...]:
    """Returns a line for each kind of unused tensors among `names`; unknown ones are named."""
    predicting = [name for name in names if _predicts_further(name, num_layers)]
    projecting = [name for name in names if name.startswith(_PROJECTIONS)]
    indexing = [name for name in names if _INDEXER in name and name not in predicting]
    unknown = [name for name in names if name not in {*predicting, *projecting, *indexing}]
    notes = []
    if predicting:
        notes.append(f"multi-token prediction (MTP), not used: {_count(predicting)}")
    if projecting:
        notes.append(f"images or audio, not used: {_count(projecting)}")
    if indexing:
        notes.append(
            "sparse attention, not used (attention goes to all earlier positions): "
            + _count(indexing)
        )
    if unknown:
        shown = ", ".join(unknown[:_SHOWN]) + (", ..." if len(unknown) > _SHOWN else "")
        notes.append(f"unknown to this architecture, not used: {_count(unknown)}, {shown}")
    return tuple(notes)


def is_extra(name: str, num_layers: int) -> bool:
    """Returns True for tensors that are never needed to run a model as text.

    They are those of MTP layers, of images or audio, and of indexers for sparse attention.
    """
    return _INDEXER in name or _predicts_further(name, num_layers) or name.startswith(_PROJECTIONS)


def _predicts_further(name: str, num_layers: int) -> bool:
    layer = layer_of(name)
    is_behind = layer is not None and layer >= num_layers
    return is_behind or ".nextn." in name or name.startswith("mtp.")


def _count(names: Sequence[str]) -> str:
    return "1 tensor" if len(names) == 1 else f"{len(names)} tensors"
