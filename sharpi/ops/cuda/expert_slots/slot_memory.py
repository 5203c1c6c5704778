"""Allocates the slots of one layer, and the buffers that all layers share."""

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.gguf.quant_types import row_bytes
from sharpi.ops.cuda.expert_slots.host_expert_copies import HostExpertCopies
from sharpi.ops.cuda.expert_slots.slot_layer import SlotLayer, SlotPiece, SlotTable
from sharpi.ops.cuda.expert_slots.slot_state import FirstSlots
from sharpi.ops.cuda.gpu_weights import aligned
from sharpi.ops.interface import ExpertWeights, StackedMatrix

_ADDRESS_BYTES = 8


def matrices_of(expert_weights: ExpertWeights) -> tuple[StackedMatrix, ...]:
    """Returns the matrices of a feed-forward: gate, if there is one, up and down."""
    return tuple(
        stacked
        for stacked in (expert_weights.gate, expert_weights.up, expert_weights.down)
        if stacked is not None
    )


def offset_of(stacked: StackedMatrix) -> int:
    """Returns the offset of a matrix within an expert's part of the tensor, in bytes."""
    return stacked.first_row * row_bytes(stacked.quant_type, stacked.columns)


class ExpertTensor(Struct, frozen=True):
    """A tensor with one or two stacked matrices of a layer, such as gate and up."""

    host_copies: HostExpertCopies
    matrices: tuple[int, ...]  # indices into the layer's stacked matrices

    @property
    def slot_bytes(self) -> int:
        """The bytes of one expert's part, rounded up so that the next one is aligned."""
        return aligned(self.host_copies.stride)


def tensors_of(
    device: Device, expert_weights: ExpertWeights, *, is_page_locked: bool
) -> tuple[ExpertTensor, ...]:
    """Returns the tensors of a layer's expert weights; gate and up may be in one tensor."""
    all_matrices, owners = matrices_of(expert_weights), dict[int, list[int]]()
    for matrix, stacked in enumerate(all_matrices):
        owners.setdefault(id(stacked.data), []).append(matrix)
    tensors = []
    for indices in owners.values():
        stacked = all_matrices[indices[0]]
        host_copies = HostExpertCopies(
            device, stacked.data, stacked.num_experts, is_page_locked=is_page_locked
        )
        tensors.append(ExpertTensor(host_copies, tuple(indices)))
    return tuple(tensors)


class SharedBuffer:
    """GPU memory for `num_experts` experts, which all layers use one after the other."""

    def __init__(self, device: Device, num_experts: int, slot_bytes: int) -> None:
        self._num_experts = num_experts
        size = num_experts * slot_bytes
        self._span = Span(device.allocate(size), 0, size) if size else None

    def parts(self, tensors: Sequence[ExpertTensor]) -> list[Span | None]:
        """Returns a part of the memory for each tensor of a layer; all None if it is empty."""
        if self._span is None:
            return [None] * len(tensors)
        starts = [0]
        for tensor in tensors:
            starts.append(starts[-1] + self._num_experts * tensor.slot_bytes)
        return [self._span.part(start, end - start) for start, end in pairwise(starts)]


def slot_layer(
    device: Device,
    expert_weights: ExpertWeights,
    tensors: Sequence[ExpertTensor],
    first: FirstSlots,
    staging: SharedBuffer,
    early: SharedBuffer,
) -> SlotLayer:
    """Allocates the slots of a layer, and an address table for each stacked matrix."""
    all_matrices = matrices_of(expert_weights)
    memories = zip(tensors, staging.parts(tensors), early.parts(tensors), strict=True)
    return SlotLayer(
        tuple(
            _piece(device, all_matrices, *memory, num_slots=first.num_slots) for memory in memories
        ),
        first,
    )


def _piece(
    device: Device,
    expert_weights: Sequence[StackedMatrix],
    tensor: ExpertTensor,
    staging: Span | None,
    early: Span | None,
    num_slots: int,
) -> SlotPiece:
    host_copies, stride = tensor.host_copies, tensor.slot_bytes
    size = num_slots * stride
    tables = (
        SlotTable(_table(device, host_copies), offset_of(expert_weights[matrix]))
        for matrix in tensor.matrices
    )
    return SlotPiece(
        host_addresses=host_copies.addresses,
        referenced=host_copies.referenced,
        num_bytes=host_copies.stride,
        stride=stride,
        slots=Span(device.allocate(size), 0, size),
        tables=tuple(tables),
        early=early,
        staging=staging,
    )


def _table(device: Device, host_copies: HostExpertCopies) -> Span:
    size = host_copies.num_experts * _ADDRESS_BYTES
    return Span(device.allocate(size), 0, size)
