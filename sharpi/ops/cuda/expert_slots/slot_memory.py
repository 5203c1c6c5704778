"""Allocates the slots of one layer, and the buffers that all layers share."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from sharpi.device.device import Device, HostArray
from sharpi.device.launch import Memory, Span
from sharpi.errors import DeviceError
from sharpi.gguf.quant_types import row_bytes
from sharpi.ops.cuda.expert_slots.slot_state import FirstSlots
from sharpi.ops.cuda.gpu_weights import aligned
from sharpi.ops.cuda.launchers.experts.host_items import MAX_PIECES, GatherPiece
from sharpi.ops.cuda.launchers.experts.slot_policy import LayerState
from sharpi.ops.interface import ExpertWeights, StackedMatrix

Upload = Callable[[HostArray], Span]


class SlotTable(Struct, frozen=True):
    """The address table of one stacked matrix."""

    addresses: Span  # (experts,) uint64
    offset: int = 0  # bytes from the start of an expert's part of the tensor


class SlotPiece(Struct, frozen=True):
    """The host copies and the slot memory of one tensor of a layer's experts.

    Copies are fastest if host copies and slots have the same alignment modulo 16 bytes.
    """

    host_addresses: NDArray[np.uint64]  # (experts,), the addresses of the host copies
    referenced: tuple[Span, ...]  # all memory that the host addresses point into
    num_bytes: int  # bytes of one expert's part
    stride: int  # bytes from one slot to the next
    slots: Span
    tables: tuple[SlotTable, ...]
    early: Span | None = None  # memory for early slots
    staging: Span | None = None  # memory for staging buffers

    def capacity(self, memory: Span | None) -> int:
        """Returns the number of slots of this tensor that fit into `memory`; 0 for None."""
        if memory is None:
            return 0
        return (memory.num_bytes + self.stride - self.num_bytes) // self.stride

    def all_addresses(self, counts: tuple[int, int, int]) -> NDArray[np.uint64]:
        """Returns the addresses of all host copies, then of slots, early slots and staging buffers.

        `counts` are the numbers of slots, of early slots and of staging buffers.
        """
        memories = zip((self.slots, self.early, self.staging), counts, strict=True)
        addresses = [
            self._addresses_of(memory, count) for memory, count in memories if memory is not None
        ]
        return np.concatenate([self.host_addresses, *addresses])

    def _addresses_of(self, memory: Span, count: int) -> NDArray[np.uint64]:
        steps = np.arange(count, dtype=np.uint64) * np.uint64(self.stride)
        return np.uint64(memory.address) + steps


class SlotLayer(Struct, frozen=True):
    """The memory of a layer's slots, and the experts that they hold at the start."""

    pieces: tuple[SlotPiece, ...]  # at most three, with at most three tables in all
    first: FirstSlots

    def __post_init__(self) -> None:
        assert len(self.pieces) <= MAX_PIECES, "too many pieces"
        assert sum(len(piece.tables) for piece in self.pieces) <= MAX_PIECES, "too many tables"
        experts = len(self.pieces[0].host_addresses)
        assert self.first.num_slots <= min(self.num_slots, experts), "more slots than memory"

    @property
    def num_slots(self) -> int:
        """The number of slots that there is memory for."""
        return min(piece.capacity(piece.slots) for piece in self.pieces)

    @property
    def num_early(self) -> int:
        """The number of early slots, to which experts are prefetched for the next use."""
        return min(32, *(piece.capacity(piece.early) for piece in self.pieces))

    @property
    def num_staging(self) -> int:
        """The number of staging buffers, to which experts without a slot are copied for one use."""
        return min(piece.capacity(piece.staging) for piece in self.pieces)

    def state(self, words: Span, learned: Span | None, upload: Upload) -> LayerState:
        """Returns the layer's slots in the form of the slot kernels' arguments."""
        counts = (self.num_slots, self.num_early, self.num_staging)
        tables = [
            (table.addresses, upload(piece.all_addresses(counts) + np.uint64(table.offset)))
            for piece in self.pieces
            for table in piece.tables
        ]
        return LayerState(words, tuple(tables), *counts, learned)

    def gather_pieces(self, upload: Upload) -> tuple[GatherPiece, ...]:
        """Returns the layer's tensors in the form of the arguments of `gather_experts`."""
        return tuple(
            GatherPiece(
                upload(piece.host_addresses),
                piece.slots,
                piece.early,
                piece.staging,
                piece.stride,
                piece.num_bytes,
                piece.referenced,
            )
            for piece in self.pieces
        )

    def with_slots(self, memories: Sequence[Span]) -> "SlotLayer":
        """Returns a copy with other memory for the slots: one span for each piece."""
        pieces = tuple(
            replace(piece, slots=slots) for piece, slots in zip(self.pieces, memories, strict=True)
        )
        num_slots = min(piece.capacity(piece.slots) for piece in pieces)
        return SlotLayer(pieces, replace(self.first, num_slots=num_slots))

    def fill_tables(self, device: Device, residents: Sequence[int]) -> None:
        """Uploads the address tables for the case that `residents` are in slots 0, 1, ...

        All other experts get the addresses of their host copies.
        """
        for piece in self.pieces:
            experts = len(piece.host_addresses)
            addresses = piece.all_addresses((len(residents), 0, 0))
            addresses[list(residents)] = addresses[experts:]
            for table in piece.tables:
                device.upload(table.addresses, addresses[:experts] + np.uint64(table.offset))


class SlotMemory(Struct, frozen=True):
    """A layer's slots on the device, in the form of launch arguments."""

    state: LayerState
    pieces: tuple[GatherPiece, ...]
    loads: Span  # the list of copies to slots
    early_loads: Span  # the list of copies to early slots
    outcomes: Span  # int32 (experts per token,), the `Outcome` of each expert of the last token


def table_of(device: Device, array: HostArray) -> Span:
    """Uploads an array to newly allocated device memory, and returns that memory."""
    span = Span(device.allocate(array.nbytes), 0, array.nbytes)
    device.upload(span, array)
    return span


Addresses = npt.NDArray[np.uint64]


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
        steps = np.arange(self.num_experts, dtype=np.uint64) * np.uint64(self.stride)
        return np.uint64(self._memory.address) + steps

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
