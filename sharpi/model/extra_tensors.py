"""What a file holds beside the model that is run: recognised, and said in a line each."""

import re
from collections.abc import Iterable, Sequence

_LAYER = re.compile(r"blk\.(\d+)\.")
_SHOWN = 4


def notes_on_extra(names: Sequence[str], num_layers: int) -> tuple[str, ...]:
    """Lines about tensors that no part of the model took; those without a known use are named."""
    predicting = [name for name in names if _predicts_further(name, num_layers)]
    projecting = [name for name in names if name.startswith(("v.", "a.", "mm.", "resampler."))]
    unknown = [name for name in names if name not in {*predicting, *projecting}]
    notes = []
    if predicting:
        notes.append(f"{_count(predicting)} for predicting further tokens (MTP) are passed over")
    if projecting:
        notes.append(f"{_count(projecting)} for images or sound are passed over")
    if unknown:
        shown = ", ".join(unknown[:_SHOWN]) + (", ..." if len(unknown) > _SHOWN else "")
        notes.append(f"{_count(unknown)} are not used by this architecture: {shown}")
    return tuple(notes)


def _predicts_further(name: str, num_layers: int) -> bool:
    layer = _LAYER.match(name)
    is_behind = layer is not None and int(layer[1]) >= num_layers
    return is_behind or ".nextn." in name or name.startswith("mtp.")


def _count(names: Iterable[str]) -> str:
    return f"{len(list(names))} tensors"
