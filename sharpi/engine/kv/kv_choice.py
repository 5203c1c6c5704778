"""Chooses the types of keys and values and the size of the KV cache, by the memory there is."""

from collections.abc import Collection, Iterator

from msgspec import Struct

from sharpi.gguf.header import is_routed, layer_of
from sharpi.gguf.reader import GgufFile
from sharpi.hardware.info import HardwareInfo
from sharpi.model.config import ModelConfig
from sharpi.ops.cpu.kv_cache import KV_FORMATS, PAGE_POSITIONS, kv_bytes, supports_kv_types
from sharpi.ops.recurrent import state_bytes
from sharpi.settings import KvTypes, RunConfig
from sharpi.tiers.facts import ModelFacts, read_facts
from sharpi.tiers.plan import TierPlan
from sharpi.tiers.planner import default_ram, plan_tiers
from sharpi.tiers.scratch import scratch_bytes
from sharpi.tiers.settings import EngineSettings, KnownSizes, usable_vrams
from sharpi.units import format_bytes

# What attention on a GPU takes beside the KV cache (sharpi/ops/cuda/recorder/attention_calls.py):
# partial results of a split context, and one layer's keys and values, gathered in order.
_PARTS_BYTES, _GATHERED_BYTES = 32 << 20, 256 << 20
# Where the weights fill the memory, one part in so many of it is worth more as KV cache than as
# room for experts.
_KV_SHARE = 8
_F16, _Q8_0 = KvTypes("f16", "f16"), KvTypes("q8_0", "q8_0")


class KvChoice(Struct, frozen=True, eq=False):
    """Chooses a KV cache of `num_positions`; sliding windows have `window_pages`, 0 for all."""

    config: RunConfig
    file: GgufFile
    model: ModelConfig
    hardware: HardwareInfo
    num_positions: int
    window_pages: int = 0

    def types(self) -> tuple[KvTypes, tuple[str, ...]]:
        """Returns the requested types, or else f16 or q8_0 by the room there is, with a note."""
        config, shapes = self.config, self.model.attention
        if config.kv_type or config.key_type or config.value_type:
            default = config.kv_type or "f16"
            return KvTypes(config.key_type or default, config.value_type or default), ()
        on_gpu, reason = self._on_gpu()
        if reason is None:
            reason = self._why_not_in_ram(on_gpu)
        if reason is None or not supports_kv_types(shapes, _Q8_0):
            return _F16, ()
        halved = format_bytes(kv_bytes(shapes, self.num_positions, _Q8_0, self.window_pages))
        note = f"keys and values are q8_0, {halved}: {reason}; --kv-type f16 takes it anyway"
        return _Q8_0, (note,)

    def _on_gpu(self) -> tuple[frozenset[int], str | None]:
        """Returns the layers on GPUs with f16 keys, and why f16 takes too much VRAM, else None."""
        config, positions = self.config, self.num_positions
        vrams = usable_vrams(config, self.hardware)
        if not vrams:
            return frozenset(), None
        settings = EngineSettings(
            positions, min(config.batch_size, positions), "int8", "", num_threads=1,
            num_batch_threads=1, window_pages=self.window_pages, num_parallel=config.num_parallel,
        )  # fmt: skip

        def planned(types: KvTypes) -> TierPlan:
            facts = read_facts(self.file, self.model, types)
            sizes = KnownSizes(gpu_scratch=gpu_buffers(facts, self.model, settings))
            return plan_tiers(facts, self.hardware, config, settings, sizes)

        f16 = planned(_F16)
        needed = kv_bytes(self.model.attention, positions, window_pages=self.window_pages)
        return _on_gpu(f16), _why_not_f16(
            f16, planned(_Q8_0), self.model.num_layers, needed, sum(vrams)
        )

    def _why_not_in_ram(self, on_gpu: Collection[int]) -> str | None:
        """Returns why f16 keys do not fit beside the dense weights; experts may stay on disk."""
        shapes = [shape for shape in self.model.attention if shape.layer not in on_gpu]
        needed = kv_bytes(shapes, self.num_positions, _F16, self.window_pages)
        dense = sum(
            tensor.num_bytes
            for name, tensor in self.file.tensors.items()
            if not is_routed(name) and layer_of(name) not in on_gpu
        )
        left = max(0, self._ram - dense)
        if needed <= left:
            return None
        return (
            f"f16 would take {format_bytes(needed)}, and {format_bytes(left)} are left beside the"
            " dense weights"
        )

    @property
    def _ram(self) -> int:
        return default_ram(self.hardware) if self.config.ram is None else self.config.ram

    def pages(self, types: KvTypes) -> tuple[int, tuple[str, ...]]:
        """Returns the pages for all sequences, at least one context's, and notes on it."""
        config, attention = self.config, self.model.attention
        of_context = -(-self.num_positions // PAGE_POSITIONS)
        wanted = config.num_parallel * of_context
        window_pages = self.window_pages if self.window_pages < wanted else 0
        in_windows = [shape for shape in attention if shape.window and window_pages]
        others = [shape for shape in attention if shape not in in_windows]
        page_bytes = kv_bytes(others, PAGE_POSITIONS, types)
        if config.num_parallel == 1 or not page_bytes:
            return wanted, ()
        vram = config.vram or self.hardware.free_vram
        # The pages of all layers may have to fit into each of these.
        memories = [self._ram, *([vram] if config.device != "cpu" and vram else [])]
        weights = sum(tensor.num_bytes for tensor in self.file.tensors.values())
        free_bytes = min(max(memory - weights, memory // _KV_SHARE) for memory in memories)
        free_bytes -= kv_bytes(in_windows, window_pages * PAGE_POSITIONS, types)
        pages = max(of_context, min(wanted, max(0, free_bytes) // page_bytes))
        if pages == wanted:
            return pages, ()
        return pages, (
            f"the KV cache has room for {pages * PAGE_POSITIONS} positions, not for a whole context"
            f" of each of {config.num_parallel} sequences; when they are long, the newest ones"
            " wait",
        )


def _why_not_f16(
    f16_plan: TierPlan, q8_plan: TierPlan, num_layers: int, f16_bytes: int, vram: int
) -> str | None:
    """Returns the reason against f16 if q8_0 leaves room for more layers or slots, else None."""
    f16, q8 = _gpu_fit(f16_plan), _gpu_fit(q8_plan)
    if q8 <= f16:  # fewer layers, or as many with fewer slots
        return None
    (layers, slots, _), (more_layers, more_slots, recommended) = f16, q8
    needed, of_layers = format_bytes(f16_bytes), f"of {num_layers} layers"
    beside = f"f16 would take {needed}, and beside it {format_bytes(vram)} of VRAM would have room"
    if more_layers > layers:
        return f"{beside} for {layers} {of_layers}, not for {more_layers}"
    wanted = f"of the {recommended} recommended experts of a layer"
    return f"{beside} for {slots} {wanted}, not for {more_slots}"


def gpu_buffers(facts: ModelFacts, model: ModelConfig, settings: EngineSettings) -> int:
    """Estimates the bytes of a GPU's buffers, slightly too high; the final plan counts them."""
    positions = settings.context_size
    largest = max((kv_bytes([shape], positions) for shape in model.attention), default=0)
    buffers = scratch_bytes(
        facts.widths,
        batch_size=settings.batch_size,
        num_positions=positions,
        rounding=settings.rounding,
        num_threads=settings.num_threads,
    )
    return buffers + _PARTS_BYTES + 2 * min(largest, _GATHERED_BYTES)


def _on_gpu(plan: TierPlan) -> frozenset[int]:
    return frozenset(i for place in plan.gpus for i in place.layers)


def _gpu_fit(plan: TierPlan) -> tuple[int, int, int]:
    """Returns the layers on GPUs, and the fewest slots of a layer with its recommended number."""
    on_gpu = _on_gpu(plan)
    counts = [
        (min(layer.vram_slots, layer.recommended_slots), layer.recommended_slots)
        for layer in plan.layers
        if layer.index in on_gpu and layer.num_experts
    ]
    return len(on_gpu), *min(counts, default=(0, 0))


def kv_notes(model: ModelConfig, context_size: int, window_pages: int = 0) -> Iterator[str]:
    """Yields lines on the KV cache of one full context: its bytes by type, and special parts."""
    sizes = ", ".join(
        f"{types} {format_bytes(kv_bytes(model.attention, context_size, types, window_pages))}"
        for types in (KvTypes(kind, kind) for kind in KV_FORMATS)
        if supports_kv_types(model.attention, types)
    )
    if model.attention:
        yield f"keys and values of {context_size} positions, once all are used: {sizes}"
    if any(shape.values_in_keys for shape in model.attention):
        yield "its latent attention keeps one small row per position, so types save little"
    windows = [shape for shape in model.attention if shape.window]
    if windows:
        largest = max(shape.window for shape in windows)
        kept = f"{window_pages * PAGE_POSITIONS} at most" if window_pages else "those before it too"
        yield (
            f"{len(windows)} of {model.num_layers} layers read a window of {largest} positions at"
            f" most, and keep {kept}"
        )
    states = sum(state_bytes(mixer.state_shapes) for mixer in model.mixers)
    if states:
        count = sum(bool(mixer.state_shapes) for mixer in model.mixers)
        yield (
            f"{count} of {model.num_layers} layers keep a state of {format_bytes(states)} in all,"
            " whatever the context and the type"
        )
