"""Placement: asks the planner which tier gets which weights, for a request on this machine."""

from msgspec.structs import replace

from sharpi.config import RunConfig
from sharpi.experts.policy_choice import learned_sizes
from sharpi.experts.profile import load_profile
from sharpi.gguf.reader import GgufFile
from sharpi.hardware.info import HardwareInfo, Rates
from sharpi.model.config import ModelConfig
from sharpi.model.weights import load_weights
from sharpi.tiers.facts import ModelFacts, read_facts
from sharpi.tiers.hit_rates import cumulative_shares
from sharpi.tiers.kv_growth import first_pages
from sharpi.tiers.plan import TierPlan
from sharpi.tiers.planner import plan_tiers
from sharpi.tiers.settings import EngineSettings, KnownSizes, usable_vrams
from sharpi.units import format_bytes

_COUNT_BYTES = 4  # of how often an expert followed another one


class Placement:
    """Collects the planner's inputs, from which `plan` computes a plan quickly.

    With `layers`, other machines run the model's other layers, which take no memory here. Raises
    UnsupportedModelError if a GPU is requested that has no kernels for the model.
    """

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
        self.facts: ModelFacts = replace(facts, use_shares=_use_shares(config, model))
        self.hardware, self._config, self._settings = hardware, config, settings
        sizes = _learned_sizes(config, model)
        if usable_vrams(config, hardware):
            from sharpi.engine.placement.memory import gpu_kv_bytes, gpu_scratch_bytes

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
    if config.experts.predictor == "last-layer":
        on_gpu += _COUNT_BYTES * (1 + model.num_experts) * model.num_experts
    return KnownSizes(learned_bytes=usual, least_learned_bytes=least, gpu_learned_bytes=on_gpu)


def _use_shares(config: RunConfig, model: ModelConfig) -> tuple[tuple[float, ...], ...]:
    """Returns each layer's cumulative shares of expert uses; empty without a profile."""
    path = config.experts.profile
    if path is None or not model.is_moe:
        return ()
    profile = load_profile(path, config.model.name, model.num_layers, model.num_experts)
    if profile is None:
        return ()
    return tuple(cumulative_shares(uses) for uses in profile.uses.tolist())


def running_plan(placement: Placement, config: RunConfig) -> tuple[TierPlan | None, str | None]:
    """Returns the plan to run by and a warning; raises UsageError for a budget that is too small.

    The plan is None if the model does not fit and cannot be split, and no budget was given. The
    model then runs from the mapped file, and the disk limits its speed.
    """
    plan = placement.plan()
    if plan.fits:
        return plan, None
    if config.ram is not None or config.moe_slots is not None:
        plan.require_fit()
    missing = format_bytes(plan.shortfall)
    return None, (
        f"the model needs {missing} more RAM than is free; parts of it are read from disk for"
        " every token"
    )
