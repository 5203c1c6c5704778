"""Where each expert is, as the kernels look it up: in the card's memory or in the host's."""

from collections.abc import Callable

import numpy as np

from sharpi.device.device import Device, HostArray
from sharpi.device.launch import Span
from sharpi.ops.cuda.card_weights import CardWeights
from sharpi.ops.cuda.experts import BankPart
from sharpi.ops.cuda.unsupported import check_type, refuse
from sharpi.ops.interface import Bank

NumResident = Callable[[int], int]


class CardBanks:
    """Banks of experts of which the first so many are on the card.

    The others are read in place, over the bus, from page-locked memory of the host.
    `num_resident` gives that number for a layer; None stands for all of every layer.
    """

    def __init__(
        self, device: Device, weights: CardWeights, num_resident: NumResident | None = None
    ) -> None:
        self._device, self._weights = device, weights
        self._num_resident = num_resident
        self._banks: dict[int, _CardBank] = {}

    def want(self, bank: Bank, layer: int | None) -> Callable[[], BankPart]:
        """Remembers a bank; the function gives the loaded one."""
        check_type(bank.quant_type)
        if bank.scales is not None:
            refuse("factors of whole experts")
        if id(bank) not in self._banks:
            count = bank.num_experts
            if layer is not None and self._num_resident is not None:
                count = min(count, self._num_resident(layer))
            self._banks[id(bank)] = _CardBank(bank, count, self._weights)
        card_bank = self._banks[id(bank)]
        return lambda: card_bank.part(self._device)


class _CardBank:
    """One bank, in two pieces at most."""

    def __init__(self, bank: Bank, num_resident: int, weights: CardWeights) -> None:
        self._bank, self._weights = bank, weights
        self._stride = bank.data.nbytes // bank.num_experts
        data = bank.data.reshape(-1)
        self._on_card = data[: num_resident * self._stride]
        self._on_host = data[num_resident * self._stride :]
        weights.want(self._on_card)
        if bank.bias is not None:
            weights.want(bank.bias)
        self._part: BankPart | None = None

    def part(self, device: Device) -> BankPart:
        """Addresses, bias and what they reach; made at the first call."""
        if self._part is None:
            pieces = [self._weights.span(self._on_card), *self._mapped(device)]
            table = np.concatenate([self._addresses(piece) for piece in pieces])
            addresses = Span(device.allocate(table.nbytes), 0, table.nbytes)
            device.upload(addresses, table)
            bias = self._weights.optional(self._bank.bias)
            self._part = BankPart(addresses, bias, tuple(pieces))
        return self._part

    def _mapped(self, device: Device) -> list[Span]:
        size = self._on_host.nbytes
        if not size:
            return []
        memory, host = device.mapped(size)
        host[:] = self._on_host
        return [Span(memory, 0, size)]

    def _addresses(self, piece: Span) -> HostArray:
        count = piece.num_bytes // self._stride
        return np.uint64(piece.address) + np.arange(count, dtype=np.uint64) * np.uint64(
            self._stride
        )
