"""Decides how experts without a slot are used: read by the GPU from RAM, or computed on the CPU."""

from collections.abc import Iterable

from msgspec import Struct

from sharpi.device.device import Device, HostArray
from sharpi.device.launch import Memory
from sharpi.engine.backends.gpu.slots import GpuSlots
from sharpi.errors import DeviceError
from sharpi.model.config import ModelConfig
from sharpi.model.weights import ModelWeights
from sharpi.ops.cuda.expert_slots.slot_memory import matrices_of
from sharpi.ops.cuda.gpu_limits import GPU_TYPES
from sharpi.settings import RunConfig
from sharpi.tiers.plan import TierPlan

_NO_STREAM_OPS = "the driver has no stream memory operations, by which the GPU calls the CPU"


class MissCapabilities(Struct, frozen=True):
    """How experts without a slot can be used, and `notes` on what the driver refused."""

    reads_ram: bool  # the GPU reads experts directly from RAM
    can_use_cpu: bool  # the CPU can compute experts for the GPU, within a graph
    notes: tuple[str, ...] = ()
    locked: object = None  # keeps the experts page-locked until slots have been allocated


def require_stream_memory_ops(device: Device, config: RunConfig, plan: TierPlan) -> None:
    """Raises DeviceError if the CPU must compute experts, but the driver does not allow it."""
    needs = config.cpu_moe or config.num_cpu_moe > 0 or not plan.is_mapped
    if plan.slotted_layers and needs and not device.has_stream_words:
        raise DeviceError(f"{_NO_STREAM_OPS}; leave experts to the GPU alone, or use --device cpu")


def find_miss_capabilities(
    device: Device, config: RunConfig, plan: TierPlan, weights: ModelWeights
) -> MissCapabilities:
    """Page-locks the experts in RAM that the GPU is to read; returns what the driver allows.

    Raises DeviceError if the GPU can neither read experts from RAM nor request them from the CPU.
    The weights must have been loaded before, since page-locked memory cannot be moved.
    """
    wants = plan.is_mapped and not config.cpu_moe
    read = [index for index in plan.slotted_layers if index >= config.num_cpu_moe]
    extra = [weights.embedding.data] if reads_embedding(plan, weights) else []
    locked = _page_lock(device, weights, read, extra) if wants else None
    if locked is not None:
        has_words = device.has_stream_words
        notes = () if has_words else (f"{_NO_STREAM_OPS}: it reads all missed experts itself",)
        return MissCapabilities(True, has_words, notes, locked)
    if not device.has_stream_words and plan.slotted_layers:
        raise DeviceError(f"{_NO_STREAM_OPS}, and page-locks no experts; use --device cpu, or -g N")
    refused = "the driver does not page-lock the experts in RAM: the CPU computes those missed"
    return MissCapabilities(False, True, (refused,) if wants and plan.slotted_layers else ())


def reads_embedding(plan: TierPlan, weights: ModelWeights) -> bool:
    """Returns True if a GPU with all layers has no room for an embedding that is not the output."""
    has_all = len(plan.gpus) == 1 and plan.first_gpu_layer == 0 and not plan.gpus[0].embeds
    return has_all and bool(plan.slotted_layers) and weights.embedding is not weights.output


def _page_lock(
    device: Device, weights: ModelWeights, layers: Iterable[int], extra: list[HostArray]
) -> object:
    """Page-locks the experts of these layers, and `extra` too if possible; None if refused."""
    arrays: dict[int, HostArray] = {}
    for index in layers:
        experts = weights.layers[index].experts
        for stacked in () if experts is None else matrices_of(experts):
            arrays[id(stacked.data)] = stacked.data
    read = list(arrays.values())
    locked = device.page_lock([*read, *extra]) if extra else None  # they may share a page
    return locked or device.page_lock(read)


def page_locked_embedding(
    device: Device, config: ModelConfig, weights: ModelWeights, slots: GpuSlots | None
) -> Memory | None:
    """Returns the embedding in page-locked RAM, from which a GPU without room for it reads rows.

    The CPU then computes nothing for a token, and the GPU needs no room for the embedding. Returns
    None where the driver allows no reads from RAM, no kernel reads the embedding's quant type, or
    an MTP head keeps the CPU busy.
    """
    reads = (slots is None or slots.settings.reads_ram) and not config.has_head
    if not reads or weights.embedding.quant_type not in GPU_TYPES:
        return None
    return device.register_array(weights.embedding.data)
