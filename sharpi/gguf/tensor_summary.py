"""TensorSummary and QuantTypeSummary: the tensors of a file as plain data."""

import re
from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from sharpi.gguf.reader import Tensor

# Tensors of routed experts: one for all experts of a layer, or one per expert (old Mixtral).
_EXPERT_TENSOR = re.compile(r"_exps\.|\.ffn_(gate|up|down)\.\d+\.")
_LAYER = re.compile(r"blk\.(\d+)\.")


class TensorSummary(Struct, frozen=True):
    """The name, type, shape and size of one tensor of a file."""

    name: str
    quant_type: str
    shape: tuple[int, ...]  # slowest axis first
    num_bytes: int
    part: int  # index of the tensor's file


class QuantTypeSummary(Struct, frozen=True):
    """The number and size of all tensors of one quant type."""

    name: str
    num_tensors: int
    num_parameters: int
    num_bytes: int


def layer_of(name: str) -> int | None:
    """Returns the index of the layer in a tensor's name; None for tensors outside the layers."""
    found = _LAYER.match(name)
    return int(found[1]) if found else None


def is_routed(name: str) -> bool:
    """Returns True if a tensor belongs to routed experts, of which a token uses only a few."""
    return _EXPERT_TENSOR.search(name) is not None


def is_expert_matrix(name: str) -> bool:
    """Returns whether a tensor is a weight matrix of routed experts, not a bias.

    The matrices may stay on disk, the biases may not.
    """
    return is_routed(name) and name.endswith(".weight")


def count_active(tensors: Iterable[Tensor], num_experts: int, num_used: int) -> int:
    """Returns the number of parameters that one token uses.

    A token uses `num_used / num_experts` of the routed experts' parameters, and all other
    parameters.
    """
    total = 0
    for tensor in tensors:
        routed = num_experts > 0 and is_routed(tensor.name)
        total += tensor.num_values * num_used // num_experts if routed else tensor.num_values
    return total


def summarise_quant_types(tensors: Iterable[Tensor]) -> tuple[QuantTypeSummary, ...]:
    """Returns one summary per quant type, the type with the most bytes first."""
    counts: Counter[str] = Counter()
    values: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for tensor in tensors:
        name = tensor.quant_type.name
        counts[name] += 1
        values[name] += tensor.num_values
        sizes[name] += tensor.num_bytes
    return tuple(
        QuantTypeSummary(name, counts[name], values[name], size)
        for name, size in sizes.most_common()
    )


def summarise_tensor(tensor: Tensor) -> TensorSummary:
    """Returns the summary of one tensor."""
    return TensorSummary(
        tensor.name, tensor.quant_type.name, tensor.shape, tensor.num_bytes, tensor.part
    )
