"""The expert store of kernels/cpu/experts, which reads experts from disk into slots in RAM.

The engine's native operations acquire experts, wait for them and release them themselves.
"""

import ctypes
import os
from collections.abc import Sequence
from ctypes import c_char_p

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from sharpi.errors import ModelFileError
from sharpi.experts.layer_stats import LayerStats
from sharpi.experts.native import store_abi as abi
from sharpi.experts.native.native_policy import NativePolicy
from sharpi.experts.native.store_abi import (
    LayerLayout,
    NativeCounts,
    PieceLayout,
    StoreLayout,
    StoreTotals,
)
from sharpi.native import NativeObject
from sharpi.system.files import READS_IN_FLIGHT

_FAULT_BYTES = 4096


class StoreSettings(Struct, frozen=True):
    """The numbers of an expert store's slots and buffers, and the settings of its disk reads."""

    slots: tuple[int, ...]  # slots of each layer
    num_staging: int  # buffers for experts that the policy does not keep
    max_prefetch_bytes: int  # the most bytes of queued reads that no thread waits for yet
    reads_in_flight: int = READS_IN_FLIGHT
    direct: bool = True  # past the page cache, where the file system allows it


class ExpertStore(NativeObject):
    """Keeps some experts in slots, and reads the others from disk when they are needed.

    `close` also stops the reads; the policy has to outlive the store. Raises ModelFileError if a
    file cannot be opened, MemoryError if the slots do not fit.
    """

    def __init__(self, layout: StoreLayout, settings: StoreSettings, policy: NativePolicy) -> None:
        self.layout, self.settings, self.policy = layout, settings, policy
        experts = (layer.num_experts for layer in layout.layers)
        self.slots = tuple(map(min, settings.slots, experts))  # that each layer has now
        self._library = abi.store_library()
        native = _native(layout, settings)
        fault = ctypes.create_string_buffer(_FAULT_BYTES)
        address = self._library.sharpi_store_create(
            ctypes.byref(native), ctypes.sizeof(native), policy.handle, fault, _FAULT_BYTES
        )
        if not address:
            raise _refusal(os.fsdecode(fault.value))
        super().__init__(address, self._library.sharpi_store_destroy, "expert store")

    def table(self, layer: int, piece: int) -> int:
        """Returns the address of the addresses (experts,) of gate (0), up (1) or down (2), or 0."""
        return int(self._library.sharpi_store_table(self.handle, layer, piece) or 0)

    def start(self) -> None:
        """Starts to read the experts that the policy loads before the first token."""
        _check(self._library.sharpi_store_start(self.handle))

    def stored(self, layer: int, expert: int) -> tuple[NDArray[np.uint8], ...] | None:
        """Returns views of an expert's gate, up and down in its slot; None if it has no slot.

        Call it between steps; the views are valid until the next step or exchange. A matrix that
        the layer lacks is empty.
        """
        if not self._library.sharpi_store_holds(self.handle, layer, expert):
            return None
        pieces = self.layout.layers[layer].pieces
        return tuple(self._piece(layer, i, expert, each) for i, each in enumerate(pieces))

    def _piece(self, layer: int, piece: int, expert: int, layout: PieceLayout) -> NDArray[np.uint8]:
        num_experts = self.layout.layers[layer].num_experts
        addresses = (ctypes.c_size_t * num_experts).from_address(self.table(layer, piece))
        values = (ctypes.c_uint8 * layout.num_bytes).from_address(addresses[expert])
        return np.frombuffer(memoryview(values), np.uint8)

    def exchange(
        self, layer: int, leaves: int, enters: int, pieces: Sequence[NDArray[np.uint8]]
    ) -> bool:
        """Replaces expert `leaves` by `enters` in its slot; `pieces` are the matrices of `enters`.

        They are gate, up and down. Call it between steps. Returns False, and changes nothing, if
        `leaves` has no slot or is pinned, or if `enters` is already in memory.
        """
        addresses = (ctypes.c_void_p * abi.NUM_PIECES)(*(each.ctypes.data for each in pieces))
        arguments = (self.handle, layer, leaves, enters, addresses)
        return bool(self._library.sharpi_store_exchange(*arguments))

    def resize(self, slots: Sequence[int]) -> None:
        """Gives layers this many slots, also during a step; layers that compute keep theirs."""
        counts = np.array(slots, np.int32)
        _check(self._library.sharpi_store_resize(self.handle, counts.ctypes.data))
        self._library.sharpi_store_slots(self.handle, counts.ctypes.data)
        self.slots = tuple(counts.tolist())

    def set_learning(self, learns: bool) -> None:
        """Turns the policy's learning on or off, see `NativePolicy`; also beside `resize`."""
        self._library.sharpi_store_set_learning(self.handle, learns)

    def set_prefetching(self, prefetches: bool) -> None:
        """Allows or forbids the policy's prefetches, see `NativePolicy`; also beside `resize`."""
        self._library.sharpi_store_set_prefetching(self.handle, prefetches)

    def layers(self) -> list[LayerStats]:
        """Returns the statistics of every layer since the start, also of dense ones."""
        counts, uses, pinned = self._counts(), self.uses(), self.policy.states().pinned
        return [
            LayerStats(
                layer=index,
                num_slots=self.slots[index],
                expert_bytes=layout.expert_bytes,
                prompt=abi.phase_counts(prompt),
                decode=abi.phase_counts(decode),
                fills=fills,
                bytes_read=bytes_read,
                uses=tuple(uses[index].tolist()),
                pinned=tuple(pinned[index].nonzero()[0].tolist()),
            )
            for index, (layout, (prompt, decode), (fills, bytes_read)) in enumerate(
                zip(self.layout.layers, counts.phases.tolist(), counts.reads.tolist(), strict=True)
            )
        ]

    def stall_seconds(self) -> float:
        """Returns the seconds that steps waited for experts, in all layers."""
        return float(self._counts().phases[..., abi.STALLS].sum()) / 1e9

    def uses(self) -> NDArray[np.int64]:
        """Returns an array (layers, experts) of the number of tokens that used each expert."""
        uses = np.zeros((len(self.layout.layers), self.policy.settings.num_experts), np.int64)
        self._library.sharpi_store_uses(self.handle, uses.ctypes.data, uses.shape[1])
        return uses

    def totals(self) -> StoreTotals:
        """Returns the counts that are not kept per layer."""
        return self._counts().totals

    def before_pin(self) -> tuple[int, int] | None:
        """Returns accesses and hits before the most used experts were pinned; None until then."""
        return self._counts().before_pin

    def last_fault(self) -> str | None:
        """Returns a sentence about the latest failed read; None if none failed."""
        text = ctypes.create_string_buffer(_FAULT_BYTES)
        self._library.sharpi_store_last_fault(self.handle, text, _FAULT_BYTES)
        return os.fsdecode(text.value) or None

    def read_error(self) -> ModelFileError:
        """Returns the error to raise for a step in which an expert could not be read."""
        fault = self.last_fault() or "the experts could not be read"
        return ModelFileError(f"{fault}; check the disk and start again with the complete file")

    def _counts(self) -> NativeCounts:
        counts = NativeCounts(len(self.layout.layers))
        self._library.sharpi_store_counts(self.handle, *counts.addresses)
        return counts


def _native(layout: StoreLayout, settings: StoreSettings) -> abi.NativeStore:
    files = (c_char_p * len(layout.files))(*map(os.fsencode, layout.files))
    pairs = zip(layout.layers, settings.slots, strict=True)
    layers = (abi.NativeLayer * len(layout.layers))(*(_native_layer(*pair) for pair in pairs))
    return abi.NativeStore(
        files=files,
        layers=layers,
        num_files=len(files),
        num_layers=len(layers),
        num_staging=settings.num_staging,
        reads_in_flight=settings.reads_in_flight,
        direct=settings.direct,
        max_prefetch_bytes=settings.max_prefetch_bytes,
    )


def _native_layer(layer: LayerLayout, num_slots: int) -> abi.NativeLayer:
    pieces = (
        abi.NativePiece(offset=each.offset, bytes=each.num_bytes, file=each.file)
        for each in layer.pieces
    )
    slots = min(num_slots, layer.num_experts)
    return abi.NativeLayer(
        num_experts=layer.num_experts,
        num_slots=slots,
        pieces=(abi.NativePiece * abi.NUM_PIECES)(*pieces),
    )


def _refusal(fault: str) -> Exception:
    if fault.startswith("no memory"):
        return MemoryError(fault)
    return ModelFileError(f"{fault or 'the expert store was refused'}; check the model's files")


def _check(result: int) -> None:
    if result:
        raise MemoryError("no memory to look up experts")
