"""GpuExpertWeights: the expert weights of all layers, as kernels on a GPU address them.

A layer has either all experts on the GPU, or some of them in slots.
"""

from collections.abc import Callable
from functools import cached_property

import numpy as np
from msgspec import Struct

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.cpu.abi import Rows
from sharpi.ops.cpu.program import ProgramLimits
from sharpi.ops.cuda.expert_slots.host_experts import HostExperts, Mailbox
from sharpi.ops.cuda.expert_slots.slot_memories import SlotSettings
from sharpi.ops.cuda.expert_slots.slot_memory import matrices_of, offset_of
from sharpi.ops.cuda.expert_slots.slotted_layers import SlottedLayers, gpu_matrix
from sharpi.ops.cuda.gpu_limits import check_type
from sharpi.ops.cuda.gpu_weights import GpuWeights
from sharpi.ops.cuda.launchers.experts.experts import GpuStackedMatrix
from sharpi.ops.interface import Activation, ExpertSource, ExpertWeights, StackedMatrix


class HostComputeSettings(Struct, frozen=True):
    """How the CPU computes missed experts."""

    num_threads: int
    instruction_set: str | None = None  # None for the machine's best
    # Loads experts that are not in memory; None reads the mapped file.
    source: ExpertSource | None = None


class GpuExpertWeights:
    """The expert weights of all layers, with an address table for each stacked matrix.

    Without `slots`, all experts are on the GPU. `host` has the settings for missed experts that the
    CPU computes.
    """

    def __init__(
        self,
        device: Device,
        weights: GpuWeights,
        slots: SlotSettings | None = None,
        host: HostComputeSettings | None = None,
    ) -> None:
        self._device, self._weights, self._host_settings = device, weights, host
        self.slotted = None if slots is None else SlottedLayers(device, weights, slots)
        self._on_host: dict[int, tuple[ExpertWeights, Activation]] = {}
        self._limits: ProgramLimits | None = None
        self._parts: dict[int, GpuStackedMatrix] = {}

    def is_slotted(self, expert_weights: ExpertWeights) -> bool:
        """Returns True if these experts have slots; otherwise all of them are on the GPU."""
        return self.slotted is not None and expert_weights.layer in self.slotted.numbers

    def sends_predictions_to_host(self, layer: int) -> bool:
        """Returns True if the GPU sends the host the ids of the experts predicted for a layer.

        The host then reads them from the disk. The GPU cannot prefetch such experts, because not
        all of them are in RAM.
        """
        settings, slotted = self._host_settings, self.slotted
        if settings is None or settings.source is None or slotted is None:
            return False
        uses_router = settings.source.uses_router and layer in slotted.numbers
        return uses_router and not slotted.fetches_early(layer)

    def register_slotted(
        self,
        expert_weights: ExpertWeights,
        activation: Activation,
        rows: Rows,
        limits: ProgramLimits,
    ) -> int:
        """Registers the experts of a layer with slots, and returns the layer's number."""
        assert self.slotted is not None
        for stacked in matrices_of(expert_weights):
            check_type(stacked.quant_type)
        number = self.slotted.register(expert_weights, rows)
        self._on_host.setdefault(number, (expert_weights, activation))
        if self._limits is None or limits.max_tokens > self._limits.max_tokens:
            self._limits = limits
        return number

    @cached_property
    def host(self) -> HostExperts:
        """The mailbox and CPU programs for missed experts, created at the first use."""
        s, limits, slotted = self._host_settings, self._limits, self.slotted
        assert s is not None
        assert limits is not None
        assert slotted is not None
        used = slotted.rules.experts_per_token
        most = max(limits.max_tokens, limits.max_outputs) * used
        columns = max(each.up.columns for each, _ in self._on_host.values())
        rows = max(each.down.rows for each, _ in self._on_host.values())
        mailbox = Mailbox(self._device, most, columns, rows)
        of_items = ProgramLimits(most, 1, 1, limits.precision, s.instruction_set)
        experts = HostExperts(mailbox, of_items, s.num_threads, s.source)
        for expert_weights, activation in self._on_host.values():
            experts.add(expert_weights, activation)
        return experts

    def close(self) -> None:
        """Stops the CPU threads that compute missed experts, if there are any."""
        if "host" in self.__dict__:
            self.host.close()

    def register(self, stacked: StackedMatrix) -> Callable[[], GpuStackedMatrix]:
        """Registers a stacked matrix for loading to the GPU.

        The returned function returns the matrix with its address table; call it after loading.
        """
        check_type(stacked.quant_type)
        self._weights.register(stacked.bias, stacked.scales, stacked.data)
        return lambda: self._part(stacked)

    def _part(self, stacked: StackedMatrix) -> GpuStackedMatrix:
        key = id(stacked)
        if key not in self._parts:
            data = self._weights.span(stacked.data)
            stride = stacked.data.nbytes // stacked.num_experts
            steps = np.arange(stacked.num_experts, dtype=np.uint64) * np.uint64(stride)
            table = np.uint64(data.address + offset_of(stacked)) + steps
            addresses = Span(self._device.allocate(table.nbytes), 0, table.nbytes)
            self._device.upload(addresses, table)
            self._parts[key] = gpu_matrix(self._weights, stacked, addresses, (data,))
        return self._parts[key]
