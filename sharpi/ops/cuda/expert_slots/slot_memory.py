"""Allocates the slots of one layer, and the buffers that all layers share."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from sharpi.device.device import Device, HostArray
from sharpi.device.launch import Memory, Span
from sharpi.errors import DeviceError
from sharpi.gguf.quant_types import row_bytes
from sharpi.ops.cuda.expert_slots.slot_state import FirstSlots
from sharpi.ops.cuda.gpu_weights import aligned
from sharpi.ops.cuda.launchers.experts.host_items import MAX_PIECES, GatherPiece
from sharpi.ops.cuda.launchers.experts.slot_policy import LayerState
from sharpi.ops.interface import ExpertWeights, StackedMatrix

Addresses = npt.NDArray[np.uint64]


class SlotTable(Struct, frozen=True):
    """The address table of one stacked matrix."""

    addresses: Span  # (experts,) uint64
    offset: int = 0  # bytes from the start of an expert's part of the tensor


class SlotPiece(GatherPiece, frozen=True):
    """The host copies and the slot memory of one tensor of a layer's experts.

    Copies are fastest if host copies and slots have the same alignment modulo 16 bytes.
    """

    copies: Addresses  # `host_addresses` on the host
    tables: tuple[SlotTable, ...]

    def capacity(self, memory: Span | None) -> int:
        """Returns the number of slots of this tensor that fit into `memory`; 0 for None."""
        if memory is None:
            return 0
        return (memory.num_bytes + self.stride - self.num_bytes) // self.stride

    def all_addresses(self, counts: tuple[int, int, int]) -> Addresses:
        """Returns the addresses of all host copies, then of slots, early slots and staging buffers.

        `counts` are the numbers of slots, of early slots and of staging buffers.
        """
        memories = zip((self.slots, self.early, self.staging), counts, strict=True)
        spans = [(span.address, count) for span, count in memories if span is not None]
        return np.concatenate([self.copies, *(_steps(at, self.stride, n) for at, n in spans)])


def _steps(first: int, stride: int, count: int) -> Addresses:
    return np.uint64(first) + np.arange(count, dtype=np.uint64) * np.uint64(stride)


class SlotLayer(Struct, frozen=True):
    """The memory of a layer's slots, and the experts that they hold at the start."""

    pieces: tuple[SlotPiece, ...]  # at most three, with at most three tables in all
    first: FirstSlots

    def __post_init__(self) -> None:
        assert len(self.pieces) <= MAX_PIECES, "too many pieces"
        assert sum(len(piece.tables) for piece in self.pieces) <= MAX_PIECES, "too many tables"
        most = min(self.counts[0], len(self.pieces[0].copies))
        assert self.first.num_slots <= most, "more slots than memory"

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many slots, early slots and staging buffers there is memory for.

        Experts are prefetched to early slots for the next use; those without a slot are copied to
        staging buffers for one use.
        """
        slots = min(piece.capacity(piece.slots) for piece in self.pieces)
        early = min(32, *(piece.capacity(piece.early) for piece in self.pieces))
        return slots, early, min(piece.capacity(piece.staging) for piece in self.pieces)

    def state(self, device: Device, words: Span, learned: Span | None) -> LayerState:
        """Returns the layer's slots in the form of the slot kernels' arguments."""
        counts = self.counts
        tables = [
            (table.addresses, table_of(device, piece.all_addresses(counts) + _offset(table)))
            for piece in self.pieces
            for table in piece.tables
        ]
        return LayerState(words, tuple(tables), *counts, learned)

    def with_slots(self, memories: Sequence[Span]) -> "SlotLayer":
        """Returns a copy with other memory for the slots: one span for each piece."""
        pairs = zip(self.pieces, memories, strict=True)
        pieces = tuple(replace(piece, slots=slots) for piece, slots in pairs)
        num_slots = min(piece.capacity(piece.slots) for piece in pieces)
        return SlotLayer(pieces, replace(self.first, num_slots=num_slots))

    def fill_tables(self, device: Device, residents: Sequence[int]) -> None:
        """Uploads the address tables for the case that `residents` are in slots 0, 1, ...

        All other experts get the addresses of their host copies.
        """
        for piece in self.pieces:
            experts = len(piece.copies)
            addresses = piece.all_addresses((len(residents), 0, 0))
            addresses[list(residents)] = addresses[experts:]
            for table in piece.tables:
                device.upload(table.addresses, addresses[:experts] + _offset(table))


def _offset(table: SlotTable) -> np.uint64:
    return np.uint64(table.offset)


def table_of(device: Device, array: HostArray) -> Span:
    """Uploads an array to newly allocated device memory, and returns that memory."""
    span = _allocated(device, array.nbytes)
    device.upload(span, array)
    return span


class HostExpertCopies:
    """The host copies of the `num_experts` experts in the tensor `data`.

    With `is_page_locked` they are page-locked in place, so that the GPU can read them; the
    constructor raises DeviceError if that fails. Otherwise they stay pageable, and every address
    is 0.
    """

    def __init__(
        self, device: Device, data: HostArray, num_experts: int, *, is_page_locked: bool = True
    ) -> None:
        self.num_experts, self.stride = num_experts, data.nbytes // num_experts
        self._data = data.reshape(num_experts, -1).view(np.uint8)
        self._memory = _page_locked(device, data) if is_page_locked else None

    @property
    def referenced(self) -> tuple[Span, ...]:
        """The memory to which `addresses` point; empty if it is not page-locked."""
        if self._memory is None:
            return ()
        return (Span(self._memory, 0, self._memory.num_bytes),)

    @property
    def addresses(self) -> Addresses:
        """The address on the GPU of each expert, (experts,); 0 if not page-locked."""
        if self._memory is None:
            return np.zeros(self.num_experts, np.uint64)
        return _steps(self._memory.address, self.stride, self.num_experts)

    def span(self, first: int, count: int) -> Span:
        """Returns the memory of `count` experts from id `first` on; it must be page-locked."""
        assert self._memory is not None
        return Span(self._memory, first * self.stride, count * self.stride)

    def copy_to(self, device: Device, expert: int, target: Span) -> None:
        """Copies one expert to GPU memory."""
        if self._memory is None:
            device.upload(target, self.bytes_of(expert))
        else:
            device.copy(target, self.span(expert, 1))

    def bytes_of(self, expert: int) -> HostArray:
        """Returns the bytes of one expert in host memory."""
        data: HostArray = self._data[expert]
        return data


def _page_locked(device: Device, data: HostArray) -> Memory:
    registered = device.register_array(data)
    if registered is None:
        raise DeviceError(
            "the driver cannot page-lock the experts in RAM; --moe-miss cpu needs none"
        )
    return registered


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
    offsets = [offset_of(stacked) for stacked in matrices_of(expert_weights)]
    pieces = []
    parts = zip(tensors, early.parts(tensors), staging.parts(tensors), strict=True)
    for tensor, of_early, of_staging in parts:
        copies, stride = tensor.host_copies, tensor.slot_bytes
        tables = (
            SlotTable(_allocated(device, copies.addresses.nbytes), offsets[matrix])
            for matrix in tensor.matrices
        )
        piece = SlotPiece(
            host_addresses=table_of(device, copies.addresses),
            slots=_allocated(device, first.num_slots * stride),
            early=of_early,
            staging=of_staging,
            stride=stride,
            num_bytes=copies.stride,
            referenced=copies.referenced,
            copies=copies.addresses,
            tables=tuple(tables),
        )
        pieces.append(piece)
    return SlotLayer(tuple(pieces), first)


def _allocated(device: Device, num_bytes: int) -> Span:
    return Span(device.allocate(num_bytes), 0, num_bytes)
