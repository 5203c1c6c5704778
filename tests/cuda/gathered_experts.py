"""One token's first half of a feed-forward, of which some experts must be copied to slots first."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from device_arrays import empty, read, upload
from products import operand, random_tokens
from quant_weights import random_weights

from sharpi.device.device import Device
from sharpi.device.launch import Launch, Span
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.launchers.experts import experts, host_items
from sharpi.ops.cuda.launchers.experts.host_items import CopyWait, GatherPiece, gather_experts
from sharpi.ops.interface import Activation

EXPERTS, SLOTS, USED, ROWS = 3, 2, 3, 64
Load = tuple[int, int, int]  # expert, target, source


class GatheredExperts:
    """Slots with unset memory, and experts in host copies; each token uses all of them."""

    def __init__(self, device: Device, quant_type: QuantType, planes: int) -> None:
        self._device, self._type, self._planes = device, quant_type, planes
        self._columns = 256 if quant_type.block_values > 32 else 96
        self._x = operand(device, random_tokens(1, self._columns), planes).span
        data = [random_weights(quant_type, EXPERTS * ROWS, self._columns, i) for i in (1, 2)]
        self._homes = [upload(device, each.reshape(EXPERTS, -1)) for each in data]
        self._bytes = data[0].nbytes // EXPERTS
        self._slots = [empty(device, SLOTS * self._bytes) for _ in data]
        self._hidden = empty(device, 4 * USED * ROWS)
        self._ids = upload(device, np.arange(USED, dtype=np.int32)[::-1].copy())
        self.words = upload(device, np.array([0, 10**6, 0], np.int64))

    def launches(self, loads: Sequence[Load]) -> tuple[Launch, Launch]:
        """Returns the launch that copies and the one that computes."""
        listed = [(len(loads), 0, 0, 0), *((*load, 0) for load in loads)]
        words = self.words
        gather = gather_experts(
            upload(self._device, np.array(listed, np.int32)),
            [self._piece(*memory) for memory in zip(self._homes, self._slots, strict=True)],
            experts=EXPERTS, num_slots=SLOTS, num_early=0, most_loads=USED,
            wait=CopyWait(words.part(16, 4), words.part(8, 8), words.part(0, 8)),
        )  # fmt: skip
        parts = [
            self._part(*memory, loads) for memory in zip(self._homes, self._slots, strict=True)
        ]
        gate_up = experts.gate_up(
            self._x, experts.Items(self._ids, 1, USED), *parts, self._hidden,
            activation=Activation.SILU, hidden_planes=0, planes=self._planes,
        )  # fmt: skip
        return gather, gate_up

    def run(self, loads: Sequence[Load], *, folds: bool) -> npt.NDArray[Any]:
        """Returns the hidden values, by one launch or by two."""
        pair: tuple[Launch, ...] = self.launches(loads)
        if folds:
            both = host_items.with_gather(*pair)
            assert both is not None
            pair = (both,)
        for launch in pair:
            self._device.launch(launch)
        return read(self._device, self._hidden, np.float32, (USED, ROWS))

    def _piece(self, home: Span, slots: Span) -> GatherPiece:
        size = self._bytes
        addresses = upload(self._device, self._places(home, EXPERTS))
        return GatherPiece(addresses, slots, None, None, size, size, (home,))

    def _part(self, home: Span, slots: Span, loads: Sequence[Load]) -> experts.GpuStackedMatrix:
        table, places = self._places(home, EXPERTS), self._places(slots, SLOTS)
        for expert, target, _ in loads:
            table[expert] = places[target - EXPERTS]
        addresses, shape = upload(self._device, table), (self._type, ROWS, self._columns)
        return experts.GpuStackedMatrix(*shape, addresses, None, (home, slots))

    def _places(self, memory: Span, count: int) -> npt.NDArray[np.uint64]:
        return np.uint64(memory.address) + np.arange(count, dtype=np.uint64) * np.uint64(
            self._bytes
        )


def run(
    device: Device, quant_type: QuantType, planes: int, loads: Sequence[Load], *, folds: bool
) -> npt.NDArray[Any]:
    """Returns the hidden values of new experts."""
    return GatheredExperts(device, quant_type, planes).run(loads, folds=folds)
