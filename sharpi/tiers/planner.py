"""Computes a TierPlan from the model's sizes, the machine's resources and the request."""

from collections.abc import Iterable

from msgspec.structs import replace

from sharpi.hardware.info import HardwareInfo
from sharpi.settings import RunConfig
from sharpi.tiers.expert_memory import recommended_slots
from sharpi.tiers.facts import LayerFacts, ModelFacts
from sharpi.tiers.gpu import GpuPlan, plan_gpu
from sharpi.tiers.host import HostPlan, plan_host
from sharpi.tiers.notes import layer_reason, plan_notes
from sharpi.tiers.plan import LayerPlan, PlanLine, Purpose, SlotStatus, Tier, TierPlan
from sharpi.tiers.scratch import scratch_bytes
from sharpi.tiers.settings import NO_SIZES, EngineSettings, KnownSizes, PlanRequest, usable_vrams
from sharpi.tiers.speed import expected_speed

HEAD_BATCH = 64  # tokens per pass of an MTP head; a small number keeps its buffers small
# While a model runs, slots shrink if less than this is free: 48 MiB, or one part in 64 of the RAM.
_LEAST_FREE, _LEAST_FREE_SHARE = 48 << 20, 64
# The margin beside a model whose file is mapped. The kernel can drop the file's pages at any time;
# while it drops few of them, the page cache is faster than slots.
MAPPED_MARGIN = 64 << 20


def plan_tiers(
    model: ModelFacts,
    hardware: HardwareInfo,
    config: RunConfig,
    settings: EngineSettings,
    sizes: KnownSizes = NO_SIZES,
) -> TierPlan:
    """Returns the plan, even for a model that does not fit: see `TierPlan.fits`."""
    vrams = usable_vrams(config, hardware)
    kv = tuple(
        settings.pages_of(has_window=layer.has_window) * layer.kv_page_bytes
        + settings.num_states * layer.state_bytes
        for layer in model.layers
    )
    request = PlanRequest(
        config,
        settings,
        sizes,
        vrams,
        hardware.vram_rates,
        kv=kv,
        scratch=_scratch(model, settings),
    )
    budget = ram_budget(config, hardware)
    gpu, host = _gpu_and_host(model, request, budget)
    if host.tier is Tier.DISK and config.ram is None:
        most = max(budget, hardware.free_ram - MAPPED_MARGIN)
        whole = _gpu_and_host(model, request, most)
        if whole[1].tier is Tier.RAM:
            budget, (gpu, host) = most, whole
    kv = _with_copies(model, request, gpu).kv
    for place in gpu.places:
        own, on_gpu = place.layers, request.kv_at_start(grows=place.growth is not None)
        kv = (*kv[: own.start], *on_gpu[own.start : own.stop], *kv[own.stop :])
    layers = tuple(_layer(model, request, i, kv[i], gpu, host) for i in range(len(model.layers)))
    num_layers = len(layers) - model.has_head
    return TierPlan(
        context_size=settings.context_size,
        ram_budget=budget,
        vram_budget=request.vram,
        status=_worst(layer.status for layer in layers),
        ratio=min((_ratio(layer) for layer in layers if layer.num_experts), default=1.0),
        num_staging=host.num_staging,
        lines=(*gpu.tier_budget.lines, *host.tier_budget.lines, *_disk_lines(layers)),
        layers=layers,
        speed=expected_speed(model, request, layers[:num_layers], gpu.has_output, hardware.rates),
        notes=(*gpu.notes, *plan_notes(model, hardware, request, host, layers)),
        gpus=gpu.places,
        uses_small_maps=host.uses_small_maps,
    )


def _with_copies(model: ModelFacts, request: PlanRequest, gpu: GpuPlan) -> PlanRequest:
    """Adds the MTP head's copies, of all pages, of keys and values of layers on a GPU."""
    copied = sum(size for i, size in model.read_by_head.items() if i in gpu.layers)
    *others, head = request.kv
    return replace(request, kv=(*others, head + request.settings.num_pages * copied))


def _gpu_and_host(model: ModelFacts, request: PlanRequest, budget: int) -> tuple[GpuPlan, HostPlan]:
    """Plans GPU and RAM; the GPU has no buffers for experts from RAM if they do not fit there."""
    gpu = _plan_gpus(model.without_head, request)
    host = plan_host(model, _with_copies(model, request, gpu), gpu, budget)
    if host.tier is Tier.DISK and gpu.slots and request.fills_from_ram:
        return _gpu_and_host(model, replace(request, fills_from_ram=False), budget)
    return gpu, host


def _plan_gpus(model: ModelFacts, request: PlanRequest) -> GpuPlan:
    if len(request.vrams) < 2:
        return plan_gpu(model, request)
    from sharpi.tiers.gpus import plan_gpus

    return plan_gpus(model, request)


def default_ram(hardware: HardwareInfo) -> int:
    """Returns the default RAM budget in bytes: the free memory less a margin.

    It is twice what has to be free, so that other programs can take some before slots shrink.
    """
    margin = 2 * least_free(hardware.ram_limit or hardware.total_ram)
    return max(0, hardware.free_ram - margin)


def ram_budget(config: RunConfig, hardware: HardwareInfo) -> int:
    """Returns the bytes of RAM that a plan may take; to run, never more than the default."""
    if config.ram is None:
        return default_ram(hardware)
    return min(config.ram, default_ram(hardware)) if hardware.limits_ram else config.ram


def least_free(total: int) -> int:
    """Returns the bytes that have to be free of `total`, the RAM or the limit of a cgroup."""
    return max(_LEAST_FREE, total // _LEAST_FREE_SHARE)


def _scratch(model: ModelFacts, settings: EngineSettings) -> int:
    passes = [(settings.batch_size, settings.num_outputs)]
    if model.has_head:
        passes.append((HEAD_BATCH, 1))
    return sum(
        scratch_bytes(
            model.widths,
            batch_size=batch_size,
            num_positions=settings.context_size,
            rounding=settings.rounding,
            num_threads=max(settings.num_threads, settings.num_batch_threads),
            num_outputs=num_outputs,
        )
        for batch_size, num_outputs in passes
    )


def _layer(
    model: ModelFacts,
    request: PlanRequest,
    index: int,
    kv_bytes: int,
    gpu: GpuPlan,
    host: HostPlan,
) -> LayerPlan:
    layer = model.layers[index]
    recommended = recommended_slots(layer, model)
    planned = LayerPlan(
        index=index,
        dense_weights=Tier.VRAM if index in gpu.layers else Tier.RAM,
        dense_weights_bytes=layer.dense_weights_bytes,
        kv_bytes=kv_bytes,
        experts=_expert_tier(index, layer, gpu, host),
        num_experts=layer.num_experts,
        expert_bytes=layer.expert_bytes,
        slot_bytes=layer.slot_bytes,
        vram_slots=gpu.slots.get(index, 0),
        ram_slots=host.slots.get(index, 0),
        recommended_slots=recommended,
        status=_slot_status(layer, _within_reach(index, layer, gpu, host), recommended),
        reason="MTP head: " if model.has_head and index == len(model.layers) - 1 else "",
    )
    is_kept_off = index in gpu.layers and request.keeps_off_gpu(index)
    reason = layer_reason(planned, model.num_experts_per_token, is_kept_off=is_kept_off)
    return replace(planned, reason=planned.reason + reason)


def _within_reach(index: int, layer: LayerFacts, gpu: GpuPlan, host: HostPlan) -> int:
    """Returns how many of the layer's experts are in the fastest tier that may hold them."""
    in_ram = layer.num_experts if host.tier is Tier.RAM else host.slots.get(index, 0)
    return gpu.slots.get(index, in_ram)


def _expert_tier(index: int, layer: LayerFacts, gpu: GpuPlan, host: HostPlan) -> Tier | None:
    if not layer.num_experts:
        return None
    return Tier.VRAM if gpu.holds_all_experts(index, layer) else host.tier


def _ratio(layer: LayerPlan) -> float:
    """Returns the layer's number of slots divided by the recommended number, at most 1."""
    slots = layer.vram_slots or layer.ram_slots
    if layer.status is SlotStatus.OK:
        return 1.0
    return slots / layer.recommended_slots


def _disk_lines(layers: tuple[LayerPlan, ...]) -> list[PlanLine]:
    on_disk = [layer for layer in layers if layer.experts is Tier.DISK]
    size = sum(layer.num_experts * (layer.expert_bytes or 0) for layer in on_disk)
    reason = f"stored experts of {len(on_disk)} layers: read from the file when missed"
    return [PlanLine(Tier.DISK, Purpose.EXPERTS, size, reason)] if on_disk else []


def _slot_status(layer: LayerFacts, num_resident: int, recommended: int) -> SlotStatus:
    """Returns the status of a layer that has this number of resident experts."""
    if not layer.num_experts:
        return SlotStatus.EMPTY
    if layer.expert_bytes is None:
        return SlotStatus.UNKNOWN_EXPERT_SIZE
    if not num_resident:
        return SlotStatus.BUDGET_EXHAUSTED
    return SlotStatus.OK if num_resident >= recommended else SlotStatus.BELOW_RECOMMENDED


def _worst(statuses: Iterable[SlotStatus]) -> SlotStatus:
    """Returns the worst of the statuses; "empty" if there are none."""
    return max(statuses, key=list(SlotStatus).index, default=SlotStatus.EMPTY)
