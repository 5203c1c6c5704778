"""SlotMemories: one layer's room on the GPU: slots of its own, and others that layers share."""

from collections.abc import Sequence
from itertools import pairwise

from sharpi.dataclass import dataclass
from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.gguf.quant_types import row_bytes
from sharpi.ops.cuda.expert_slots.expert_homes import ExpertHomes
from sharpi.ops.cuda.expert_slots.slot_layer import SlotLayer, SlotPiece, SlotTable
from sharpi.ops.cuda.expert_slots.slot_state import FirstSlots
from sharpi.ops.cuda.gpu_weights import aligned
from sharpi.ops.interface import Bank, ExpertBanks

_ADDRESS_BYTES = 8


def banks_of(banks: ExpertBanks) -> tuple[Bank, ...]:
    """Gate, where there is one, up and down."""
    return tuple(bank for bank in (banks.gate, banks.up, banks.down) if bank is not None)


def offset_of(bank: Bank) -> int:
    """Where a bank's matrix begins within what a tensor has of an expert."""
    return bank.first_row * row_bytes(bank.quant_type, bank.columns)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of all experts, and the banks that are in it, by their place in the layer."""

    homes: ExpertHomes
    banks: tuple[int, ...]

    @property
    def slot_bytes(self) -> int:
        """Room for one expert's part, so that the next begins aligned."""
        return aligned(self.homes.stride)


def tensors_of(device: Device, banks: ExpertBanks, *, is_reached: bool) -> tuple[Tensor, ...]:
    """The layer's tensors, each once: gate and up may share one."""
    all_banks, owners = banks_of(banks), dict[int, list[int]]()
    for place, bank in enumerate(all_banks):
        owners.setdefault(id(bank.data), []).append(place)
    tensors = []
    for places in owners.values():
        bank = all_banks[places[0]]
        homes = ExpertHomes(device, bank.data, bank.num_experts, is_reached=is_reached)
        tensors.append(Tensor(homes, tuple(places)))
    return tuple(tensors)


class SharedRoom:
    """Memory for so many experts of any layer, of which each has what it needs for its tensors."""

    def __init__(self, device: Device, num_experts: int, slot_bytes: int) -> None:
        self._num_experts = num_experts
        size = num_experts * slot_bytes
        self._span = Span(device.allocate(size), 0, size) if size else None

    def parts(self, tensors: Sequence[Tensor]) -> list[Span | None]:
        """Room for every tensor's part of the experts, side by side."""
        if self._span is None:
            return [None] * len(tensors)
        starts = [0]
        for tensor in tensors:
            starts.append(starts[-1] + self._num_experts * tensor.slot_bytes)
        return [self._span.part(start, end - start) for start, end in pairwise(starts)]


def slot_layer(
    device: Device,
    banks: ExpertBanks,
    tensors: Sequence[Tensor],
    first: FirstSlots,
    staging: SharedRoom,
    early: SharedRoom,
) -> SlotLayer:
    """A layer with slots of its own, and a table of addresses for each bank."""
    all_banks = banks_of(banks)
    rooms = zip(tensors, staging.parts(tensors), early.parts(tensors), strict=True)
    return SlotLayer(
        tuple(_piece(device, all_banks, *room, num_slots=first.num_slots) for room in rooms), first
    )


def _piece(
    device: Device,
    banks: Sequence[Bank],
    tensor: Tensor,
    staging: Span | None,
    early: Span | None,
    num_slots: int,
) -> SlotPiece:
    homes, stride = tensor.homes, tensor.slot_bytes
    size = num_slots * stride
    tables = (SlotTable(_table(device, homes), offset_of(banks[place])) for place in tensor.banks)
    return SlotPiece(
        homes=homes.addresses,
        reach=homes.reach,
        num_bytes=homes.stride,
        stride=stride,
        slots=Span(device.allocate(size), 0, size),
        tables=tuple(tables),
        early=early,
        staging=staging,
    )


def _table(device: Device, homes: ExpertHomes) -> Span:
    size = homes.num_experts * _ADDRESS_BYTES
    return Span(device.allocate(size), 0, size)
