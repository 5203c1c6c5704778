"""Decides how experts without a slot are used: read by the GPU from RAM, or computed on the CPU."""

from collections.abc import Iterable

from msgspec import Struct

from sharpi.config import RunConfig
from sharpi.device.device import Device, HostArray
from sharpi.errors import DeviceError
from sharpi.model.weights import ModelWeights
from sharpi.ops.cuda.expert_slots.slot_memory import matrices_of
from sharpi.tiers.plan import TierPlan

_NO_WORDS = "the driver has no stream memory operations, by which the GPU asks the CPU"


class Reach(Struct, frozen=True):
    """The ways to use experts without a slot that the driver allows; `notes` has its refusals."""

    reads_ram: bool  # the GPU reads experts directly from RAM
    can_ask: bool  # the GPU can ask the CPU to compute, and wait for the result within a graph
    notes: tuple[str, ...] = ()


def require_words(device: Device, config: RunConfig, plan: TierPlan) -> None:
    """Raises DeviceError if the CPU has to compute experts, and the GPU cannot ask it to."""
    needs = config.cpu_moe or config.num_cpu_moe > 0 or not plan.is_mapped
    if plan.slotted_layers and needs and not device.has_stream_words:
        raise DeviceError(f"{_NO_WORDS}; leave experts to the GPU alone, or use --device cpu")


def find_reach(device: Device, config: RunConfig, plan: TierPlan, weights: ModelWeights) -> Reach:
    """Page-locks the experts that the GPU is to read, and returns the ways to use them.

    Raises DeviceError if the GPU can neither read experts from RAM nor ask the CPU. The weights
    must have been loaded before, since page-locked memory cannot be moved.
    """
    wants = plan.is_mapped and not config.cpu_moe
    read = [index for index in plan.slotted_layers if index >= config.num_cpu_moe]
    reads = wants and _are_page_locked(device, weights, read)
    if reads and device.has_stream_words:
        return Reach(True, True)
    if reads:
        return Reach(True, False, (f"{_NO_WORDS}: it reads all missed experts itself",))
    if not device.has_stream_words and plan.slotted_layers:
        raise DeviceError(f"{_NO_WORDS}, and page-locks no experts; use --device cpu, or -g N")
    refused = "the driver does not page-lock the experts in RAM: the CPU computes those missed"
    return Reach(False, True, (refused,) if wants and plan.slotted_layers else ())


def _are_page_locked(device: Device, weights: ModelWeights, layers: Iterable[int]) -> bool:
    arrays: dict[int, HostArray] = {}
    for index in layers:
        experts = weights.layers[index].experts
        for stacked in () if experts is None else matrices_of(experts):
            arrays[id(stacked.data)] = stacked.data
    return device.page_lock(list(arrays.values()))
