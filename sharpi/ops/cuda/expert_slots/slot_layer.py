"""SlotLayer: the memory of one layer's slots and host copies, tensor by tensor."""

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from sharpi.device.device import Device, HostArray
from sharpi.device.launch import Span
from sharpi.ops.cuda.expert_slots.slot_state import FirstSlots
from sharpi.ops.cuda.launchers.experts.gather_experts import MAX_PIECES, GatherPiece
from sharpi.ops.cuda.launchers.experts.slot_policy import LayerState

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
