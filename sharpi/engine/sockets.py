"""Sockets: what features implement, so that loading and computing steps need not name them.

Two sockets are elsewhere: `ModelPart` runs layers, and `TokenProposer` proposes tokens to a step.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from sharpi.engine.backends.model_part import ModelPart, RemoteLayers, Segment, StepRoutes
from sharpi.engine.placement.choice import NO_GPUS, GpuRates
from sharpi.gguf.reader import GgufFile
from sharpi.hardware.info import HardwareInfo
from sharpi.model.config import ModelConfig
from sharpi.model.weights import ModelWeights
from sharpi.settings import RunConfig
from sharpi.tiers.plan import TierPlan
from sharpi.tiers.settings import EngineSettings

if TYPE_CHECKING:
    from sharpi.engine.backends.expert_tier import ExpertTier
    from sharpi.engine.records.expert_records import ExpertRecords


class LoadedModel(Struct, frozen=True):
    """A rank's loaded model; `tier` has the slots in RAM, None if all experts are mapped."""

    file: GgufFile
    config: ModelConfig
    weights: ModelWeights
    settings: EngineSettings
    plan: TierPlan | None
    tier: "ExpertTier | None"
    records: "ExpertRecords"


class LayerShare:
    """The layers that this process runs: all of them, unless a subclass shares them with others.

    `remote` is the part that other machines run, once `parts` was called.
    """

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

    def parts(self, own: Sequence[ModelPart], loaded: LoadedModel) -> list[ModelPart]:
        """Returns all parts that this process steps through."""
        return list(own)


class StepObserver(Protocol):
    """Sees every step after it was computed."""

    @property
    def reads_routes(self) -> bool:
        """True if `step` reads the routes of decoded tokens."""

    def step(self, segments: Sequence[Segment], program: StepRoutes) -> None:
        """Observes a step of these segments."""
