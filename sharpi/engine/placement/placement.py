"""Placement: asks the planner which tier gets which weights, and prepares what the plan asks for.

That is which weights are copied out of the mapped file, and which options apply to slots in RAM.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from sharpi.engine.placement.measured import known_misses
from sharpi.errors import UsageError
from sharpi.experts.policy_choice import learned_sizes
from sharpi.experts.policy_settings import POLICIES, PolicyKind
from sharpi.gguf.header import is_expert_matrix
from sharpi.gguf.reader import GgufFile
from sharpi.hardware.info import HardwareInfo, Rates
from sharpi.model.config import ModelConfig
from sharpi.model.weights import is_extra, load_weights
from sharpi.settings import ExpertConfig, RunConfig
from sharpi.tiers.expert_memory import first_pages
from sharpi.tiers.facts import ModelFacts, read_facts
from sharpi.tiers.notes import is_fixed, missing_note
from sharpi.tiers.plan import TierPlan
from sharpi.tiers.planner import plan_tiers
from sharpi.tiers.settings import EngineSettings, KnownSizes, usable_vrams
from sharpi.tiers.speed import cumulative_shares

if TYPE_CHECKING:
    from sharpi.gguf.copied import TensorCopies


class Placement:
    """Collects the planner's inputs; raises UnsupportedModelError if a GPU has no kernels."""

    def __init__(
        self,
        config: RunConfig,
        file: GgufFile,
        model: ModelConfig,
        settings: EngineSettings,
        hardware: HardwareInfo,
        layers: range | None = None,
    ) -> None:
        facts = read_facts(file, model, settings.kv_types)
        facts = facts if layers is None else facts.only(layers)
        self.facts: ModelFacts = replace(
            facts, use_shares=_use_shares(config, model), known_misses=known_misses(file)
        )
        self.hardware, self._config, self._settings = hardware, config, settings
        sizes = _learned_sizes(config, model)
        if usable_vrams(config, hardware):
            from sharpi.engine.backends.gpu.part import gpu_scratch_bytes
            from sharpi.engine.backends.gpu.part_memory import gpu_kv_bytes

            first = first_pages(settings.num_pages)
            few = replace(settings, num_kv_pages=first)
            sizes = replace(
                sizes,
                gpu_scratch=gpu_scratch_bytes(model, load_weights(file, model), settings),
                gpu_kv=gpu_kv_bytes(model, settings, layers),
                gpu_kv_first=gpu_kv_bytes(model, few, layers),
                kv_first_pages=first,
            )
        self._sizes: KnownSizes = sizes

    def plan(self, rates: Rates | None = None) -> TierPlan:
        """Returns the plan; its speed is estimated from `rates`, or those of the hardware info."""
        hardware = replace(self.hardware, rates=rates) if rates else self.hardware
        return plan_tiers(self.facts, hardware, self._config, self._settings, self._sizes)


def _learned_sizes(config: RunConfig, model: ModelConfig) -> KnownSizes:
    """Returns the bytes per layer of what policies learn."""
    if not model.is_moe:
        return KnownSizes()
    usual, least = learned_sizes(config.experts, model.num_experts, on_gpu=False)
    on_gpu, _ = learned_sizes(config.experts, model.num_experts, on_gpu=True)
    return KnownSizes(learned_bytes=usual, least_learned_bytes=least, gpu_learned_bytes=on_gpu)


def _use_shares(config: RunConfig, model: ModelConfig) -> tuple[tuple[float, ...], ...]:
    """Returns each layer's cumulative shares of expert uses; empty without a profile."""
    path = config.experts.profile
    if path is None or not model.is_moe:
        return ()
    from sharpi.experts.profile import load_profile

    profile = load_profile(path, config.model.name, model.num_layers, model.num_experts)
    if profile is None:
        return ()
    return tuple(cumulative_shares(uses) for uses in profile.uses.tolist())


def running_plan(placement: Placement, config: RunConfig) -> tuple[TierPlan | None, str | None]:
    """Returns the plan, None if it does not fit, and a warning; raises UsageError for a budget."""
    plan = placement.plan()
    if plan.fits:
        return plan, None
    if is_fixed(config):
        plan.require_fit()
    return None, missing_note(plan.shortfall, config)


EMBEDDING = "token_embd.weight"


def weight_copies(
    file: GgufFile, config: RunConfig, model: ModelConfig, plan: TierPlan | None
) -> "TensorCopies | None":
    """Allocates memory for copies of weights; returns None if the mapped file is used.

    `--load copy` asks for them. Experts that a GPU reads from RAM are faster in huge pages, and
    dense weights beside streamed experts must stay in memory. Raises UsageError without room.
    """
    reads_experts = plan is not None and not plan.is_mapped
    if not reads_experts and config.load != "copy":
        return _for_gpu(file, config, plan) if config.load == "auto" and plan is not None else None
    if plan is None:
        raise UsageError(f"--load copy: {file.path} is larger than the RAM that is free")
    copied = [
        tensor
        for name, tensor in file.tensors.items()
        if _is_used(name, model) and not (reads_experts and is_expert_matrix(name))
    ]
    from sharpi.gguf.copied import TensorCopies

    return TensorCopies(file.parts, copied)


def _is_used(name: str, model: ModelConfig) -> bool:
    is_of_head = model.has_head and name.startswith(f"blk.{model.num_layers}.")
    return is_of_head or not is_extra(name, model.num_layers)


def _for_gpu(file: GgufFile, config: RunConfig, plan: TierPlan) -> "TensorCopies | None":
    """Allocates copies of the experts and embedding that a GPU reads from RAM."""
    if config.cpu_moe:
        return None
    read = {f"blk.{i}" for i in plan.slotted_layers if i >= config.num_cpu_moe}
    copied = [
        tensor
        for name, tensor in file.tensors.items()
        if is_expert_matrix(name) and ".".join(name.split(".", 2)[:2]) in read
    ]
    if _lacks_embedding(plan) and "output.weight" in file.tensors:
        copied.append(file.tensors[EMBEDDING])
    if not copied:
        return None
    from sharpi.gguf.copied import TensorCopies

    try:
        return TensorCopies(file.parts, copied)
    except MemoryError:
        return None


def _lacks_embedding(plan: TierPlan) -> bool:
    """Returns True if one GPU has all layers, but no room for the embedding."""
    return len(plan.gpus) == 1 and plan.first_gpu_layer == 0 and not plan.gpus[0].embeds


# The policies that rank experts by their uses alone.
PLAIN_POLICIES = tuple(
    name for name, kind in POLICIES.items() if not kind.is_learned and kind is not PolicyKind.STATIC
)


def ram_request(config: RunConfig, plan: TierPlan | None) -> ExpertConfig:
    """Returns the options for slots in RAM, which learn and pin little under a GPU with layers."""
    asked = config.experts
    if plan is None or not has_gpu_layers(plan):
        return asked
    is_plain = asked.policy in PLAIN_POLICIES
    pins_here = (
        asked.policy == "static"
        or asked.resident is not None
        or not any(layer.vram_slots for layer in plan.layers)
    )
    return replace(
        asked,
        policy=asked.policy if is_plain else "slru",
        warm_pin=asked.warm_pin if pins_here else 0,
        prefetch=asked.prefetch and plan.first_gpu_layer == 0,
        predictor=None, resident=None, resident_ids=None,
    )  # fmt: skip


def may_map(config: RunConfig, plan: TierPlan) -> bool:
    """Returns True if slots in RAM may be given up for the mapped file: none was asked for."""
    is_asked = config.ram is not None or config.moe_slots is not None or config.load == "copy"
    asked, usual = config.experts, ExpertConfig()
    chosen = ("policy", "load_budget", "warm_pin", "warm_pin_after", "prefetch", "predictor",
              "resident", "resident_ids")  # fmt: skip
    is_usual = all(getattr(asked, name) == getattr(usual, name) for name in chosen)
    return is_usual and not is_asked and not has_gpu_layers(plan)


def resident_notes(config: RunConfig, plan: TierPlan) -> Iterator[str]:
    """Yields a note if something was asked of expert slots, and no expert ever moves."""
    records: dict[str, Any] = {"stats": None, "trace": None, "profile": None, "trace_routes": False}
    asks_nothing = replace(config.experts, **records) == ExpertConfig()
    if asks_nothing and config.moe_slots is None:
        return
    if not any(layer.num_experts for layer in plan.layers):
        yield "the model has no routed experts: --moe options have no effect"
    elif all(layer.is_resident for layer in plan.layers):
        yield "all experts are resident: --moe options have no effect"


def file_notes(config: RunConfig, plan: TierPlan) -> Iterator[str]:
    """Yields a note if slots in RAM may be given up for the mapped file while the model runs."""
    if any(layer.ram_slots for layer in plan.layers) and may_map(config, plan):
        yield (
            "slots in RAM give way to the mapped file while the model runs, if that is measured to"
            " be faster; --moe-slots keeps them"
        )


def has_gpu_layers(plan: TierPlan) -> bool:
    """Returns True if some layers run on a GPU."""
    return plan.first_gpu_layer < len(plan.layers)
