"""Split models: each rank has the first part and the parts that hold its layers."""

from collections.abc import Sequence, Set

from msgspec import Struct

from sharpi.errors import ClusterError, UsageError
from sharpi.gguf.reader import GgufFile
from sharpi.gguf.tensor_infos import TensorInfo
from sharpi.gguf.tensor_summary import layer_of

# The tensors that look up tokens and compute logits.
_OF_FIRST_RANK = ("token_embd", "output", "per_layer_")


class Parts(Struct, frozen=True):
    """The number of parts of a rank's model, and the tensors of the parts that its machine has."""

    count: int
    tensors: dict[int, list[TensorInfo]]  # by the part's index; empty for a model of one file


def own_parts(file: GgufFile) -> Parts:
    """Returns the number of parts of the model, and the tensors of those on this machine."""
    return Parts(len(file.parts), file.infos() if len(file.parts) > 1 else {})


def completed(file: GgufFile, ranks: Sequence[Parts], hosts: Sequence[str]) -> GgufFile:
    """Returns the file with the tensors of all parts, even of parts that only other ranks have.

    Raises ClusterError if no rank has a part, or if ranks have different numbers of parts.
    """
    for rank, other in enumerate(ranks):
        if other.count != len(file.parts):
            raise ClusterError(
                f"rank {rank} on {hosts[rank]} has a model of {other.count} parts, and this one"
                f" has {len(file.parts)}"
            )
    infos = {}
    for part in sorted(file.missing_parts):
        found = next((each.tensors[part] for each in ranks if part in each.tensors), None)
        if found is None:
            raise ClusterError(f"{file.parts[part]}: no machine has this part")
        infos[part] = found
    return file.with_missing_parts(infos) if infos else file


def layers_of_parts(file: GgufFile, parts: Set[int]) -> frozenset[int]:
    """Returns the layers that have a tensor in one of these parts."""
    tensors = file.tensors.values()
    layers = (layer_of(tensor.name) for tensor in tensors if tensor.part in parts)
    return frozenset(layer for layer in layers if layer is not None)


def require_parts(
    file: GgufFile, missing_parts: Set[int], layers: range, rank: int, host: str
) -> None:
    """Raises UsageError if a rank needs a missing part for its layers."""
    for tensor in file.tensors.values():
        layer = layer_of(tensor.name)
        is_needed = (
            layer in layers
            if layer is not None
            else rank == 0 or not tensor.name.startswith(_OF_FIRST_RANK)
        )
        if is_needed and tensor.part in missing_parts:
            raise UsageError(
                f"rank {rank} on {host} needs {tensor.name} and does not have the part that holds"
                f" it, {file.parts[tensor.part].name}: copy it there"
            )
