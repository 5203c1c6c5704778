"""LoadDecisions: what is decided about a model before anything large is read.

A LayerShare says which layers this process runs.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from sharpi.engine.backends.model_part import ModelPart, RemoteLayers
from sharpi.engine.head_choice import choose_head
from sharpi.engine.placement.choice import NO_GPUS, GpuChoice, GpuRates, OpenGpu, gpu_rates
from sharpi.engine.placement.measured import known_rates
from sharpi.engine.placement.placement import resident_notes
from sharpi.engine.settings import decide, on_cpu
from sharpi.gguf.reader import GgufFile
from sharpi.hardware.info import HardwareInfo, probe_hardware
from sharpi.hardware.memory import MemoryGauge
from sharpi.model.config import ModelConfig, read_config
from sharpi.model.weights import ModelWeights
from sharpi.settings import RopeRequest, RunConfig
from sharpi.system.process import print_running_note
from sharpi.system.reservations import Reservation, planning, reserve, reserved
from sharpi.tiers.facts import ModelFacts
from sharpi.tiers.notes import slot_notes
from sharpi.tiers.plan import TierPlan
from sharpi.tiers.planner import ram_budget
from sharpi.tiers.settings import EngineSettings
from sharpi.units import format_bytes

if TYPE_CHECKING:
    from sharpi.engine.backends.expert_tier import ExpertTier
    from sharpi.engine.records.expert_records import ExpertRecords
    from sharpi.experts.profile import ExpertProfile


class LayerShare:
    """The layers that this process runs: all, unless a subclass leaves `remote` ones to others."""

    is_shared = False
    is_first = True  # on the machine that embeds tokens and samples
    layers: range | None = None  # None for all
    remote: RemoteLayers | None = None
    notes: tuple[str, ...] = ()

    def complete(self, file: GgufFile) -> GgufFile:
        """Returns the file with the tensors of parts that only other machines have."""
        return file

    def agree(
        self,
        config: RunConfig,
        file: GgufFile,
        model: ModelConfig,
        settings: EngineSettings,
        hardware: HardwareInfo,
        gpus: GpuRates = NO_GPUS,
    ) -> EngineSettings:
        """Decides `layers`; returns the settings that all machines use."""
        return settings

    def parts(self, own: Sequence[ModelPart], loaded: "LoadedModel") -> list[ModelPart]:
        """Returns all parts that this process steps through."""
        return list(own)


class LoadDecisions(Struct, frozen=True, eq=False):
    """How a model is run: where its weights are, and with which settings."""

    config: RunConfig  # without drafts and GPUs that are of no use here
    file: GgufFile  # with the tensors of an MTP head that has a file of its own
    model: ModelConfig  # for the context size of the settings
    settings: EngineSettings
    gpu: GpuChoice
    layers: range | None  # of this rank; None for all
    facts: ModelFacts
    plan: TierPlan | None
    warning: str | None  # why there is no plan
    profile: "ExpertProfile | None"
    notes: tuple[str, ...]  # on settings, dropped keys and the head
    reservation: Reservation  # of the RAM that the plan takes

    @property
    def gpu_name(self) -> str | None:
        """The GPUs' names and first layers, on which result bits depend; None on the CPU."""
        return self.gpu.description(self.plan)

    @property
    def plan_notes(self) -> tuple[str, ...]:
        """Sentences for the user about the plan, or the reason why there is no plan."""
        if self.plan is None:
            return () if self.warning is None else (self.warning,)
        is_limited = self.config.moe_slots is not None
        return (
            *slot_notes(self.plan, is_limited=is_limited),
            *resident_notes(self.config, self.plan),
            *self.plan.notes,
        )


class LoadedModel(Struct, frozen=True):
    """A rank's loaded model; `tier` has the slots in RAM, None if all experts are mapped."""

    decided: LoadDecisions
    weights: ModelWeights
    tier: "ExpertTier | None"
    records: "ExpertRecords"


def decide_load(
    file: GgufFile, config: RunConfig, open_device: OpenGpu, share: LayerShare
) -> LoadDecisions:
    """Decides how to run the model of a file; raises SharpiError if it cannot run."""
    file = share.complete(file)
    model = read_config(file)
    if config.rope != RopeRequest():
        from sharpi.model.rope_override import with_rope

        model = with_rope(model, config.rope)
    hardware = probe_hardware(config.instruction_set)
    config, keep_notes = on_cpu(config)
    gpu = GpuChoice(config, open_device)
    shared = (file, model)  # all that several ranks have in common
    file, model, config, head_notes = choose_head(
        file, model, config,
        has_gpu=bool(gpu.devices), is_shared=share.is_shared, is_first=share.is_first,
    )  # fmt: skip
    settings = decide(config, file, model, hardware)
    if share.is_shared:
        rates = gpu_rates(gpu.devices, config)
        settings = share.agree(config, *shared, settings, hardware, rates)
    model = model.for_context(settings.context_size)
    hardware = replace(hardware, rates=known_rates(file, model, settings))
    with planning():
        hardware, groups = _with_free_ram(config, hardware)
        placement, plan, warning = gpu.place(file, model, settings, hardware, share.layers)
        reservation = reserve(0 if plan is None else plan.private_bytes, groups)
    notes = (*settings.notes, *keep_notes, *head_notes)
    return LoadDecisions(
        config, file, model, settings, gpu, share.layers, placement.facts, plan, warning,
        _profile(config, model), notes, reservation,
    )  # fmt: skip


def _with_free_ram(
    config: RunConfig, hardware: HardwareInfo
) -> tuple[HardwareInfo, tuple[str, ...]]:
    """Returns `hardware` with the RAM that other processes leave, and the limiting cgroups."""
    gauge = MemoryGauge()
    free = gauge.read(reserved()).free
    hardware = replace(hardware, free_ram=free, limits_ram=True)
    if config.ram is not None and config.ram > free:
        budget = format_bytes(ram_budget(config, hardware))
        print_running_note(f"only {format_bytes(free)} of RAM is free now: {budget} are used")
    return hardware, gauge.folders


def _profile(config: RunConfig, model: ModelConfig) -> "ExpertProfile | None":
    """Reads the expert uses of earlier runs, if there were any; raises StatsFileError."""
    if config.experts.profile is None:
        return None
    from sharpi.experts.profile import load_profile

    name = config.model.name
    return load_profile(config.experts.profile, name, model.num_layers, model.num_experts)
