"""Where each expert is, as the kernels look it up: in the card's memory or in the host's."""

from collections.abc import Callable

import numpy as np

from sharpi.device.device import Device, HostArray
from sharpi.device.launch import Span
from sharpi.gguf.quant_types import row_bytes
from sharpi.ops.cuda.card_weights import CardWeights
from sharpi.ops.cuda.experts import BankPart
from sharpi.ops.cuda.unsupported import check_type
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
        self._data: dict[int, _ExpertData] = {}
        self._parts: dict[int, BankPart] = {}

    def want(self, bank: Bank, layer: int | None) -> Callable[[], BankPart]:
        """Remembers a bank; the function gives the loaded one."""
        check_type(bank.quant_type)
        for array in (bank.bias, bank.scales):
            if array is not None:
                self._weights.want(array)
        data = self._data_of(bank, layer)
        return lambda: self._part(bank, data)

    def _data_of(self, bank: Bank, layer: int | None) -> "_ExpertData":
        """The bank's memory, which gate and up may share."""
        key = id(bank.data)
        if key not in self._data:
            count = bank.num_experts
            if layer is not None and self._num_resident is not None:
                count = min(count, self._num_resident(layer))
            self._data[key] = _ExpertData(bank, count, self._weights)
        return self._data[key]

    def _part(self, bank: Bank, data: "_ExpertData") -> BankPart:
        key = id(bank)
        if key not in self._parts:
            first = bank.first_row * row_bytes(bank.quant_type, bank.columns)
            table = data.addresses(self._device) + np.uint64(first)
            addresses = Span(self._device.allocate(table.nbytes), 0, table.nbytes)
            self._device.upload(addresses, table)
            bias, factors = map(self._weights.optional, (bank.bias, bank.scales))
            self._parts[key] = BankPart(addresses, bias, data.pieces(self._device), factors)
        return self._parts[key]


class _ExpertData:
    """What a tensor has of all experts, in two pieces at most."""

    def __init__(self, bank: Bank, num_resident: int, weights: CardWeights) -> None:
        self._weights = weights
        self._stride = bank.data.nbytes // bank.num_experts
        data = bank.data.reshape(-1)
        self._on_card = data[: num_resident * self._stride]
        self._on_host = data[num_resident * self._stride :]
        weights.want(self._on_card)
        self._pieces: tuple[Span, ...] = ()

    def pieces(self, device: Device) -> tuple[Span, ...]:
        """Where they are; made at the first call after the weights were loaded."""
        if not self._pieces:
            self._pieces = (self._weights.span(self._on_card), *self._mapped(device))
        return self._pieces

    def _mapped(self, device: Device) -> tuple[Span, ...]:
        size = self._on_host.nbytes
        if not size:
            return ()
        memory, host = device.mapped(size)
        host[:] = self._on_host
        return (Span(memory, 0, size),)

    def addresses(self, device: Device) -> HostArray:
        """Where each expert's rows begin, (experts,) uint64."""
        starts = [
            np.uint64(piece.address)
            + np.arange(piece.num_bytes // self._stride, dtype=np.uint64) * np.uint64(self._stride)
            for piece in self.pieces(device)
        ]
        return np.concatenate(starts)
