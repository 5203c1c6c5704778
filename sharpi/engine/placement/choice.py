"""GpuChoice: decides which processor computes, and where everything lives then.

A GPU is used if there is one, unless something prevents that; then the CPU computes and a note says
why. With `--device cuda` the reason is raised instead.
"""

from collections.abc import Callable

from msgspec.structs import replace

from sharpi.config import RunConfig
from sharpi.device.device import Device
from sharpi.device.traced import traced
from sharpi.engine.placement.placement import Placement, running_plan
from sharpi.engine.settings import EngineSettings
from sharpi.errors import DeviceError, MissingPackageError, SharpiError, UnsupportedModelError
from sharpi.gguf.reader import GgufFile
from sharpi.hardware.gpu import has_gpu, probe_gpus
from sharpi.hardware.info import HardwareInfo
from sharpi.model.config import ModelConfig
from sharpi.tiers.plan import TierPlan

OpenGpu = Callable[[], Device]
_NO_GPU = "no NVIDIA GPU was found; `sharpi doctor` shows what this machine has"
Placed = tuple[Placement, TierPlan | None, str | None]


def is_there() -> bool:
    """Returns True if an NVIDIA GPU is plugged in, or a driver reports one elsewhere (WSL)."""
    return has_gpu() or probe_gpus() is not None


class GpuChoice:
    """Chooses the GPU as `device`, or None for the CPU; `notes` say why the GPU is not used."""

    def __init__(
        self, config: RunConfig, open_device: OpenGpu, is_there: Callable[[], bool] = is_there
    ) -> None:
        self._config = config
        self.notes: tuple[str, ...] = ()
        self.device: Device | None = None
        if config.device == "cpu" or config.gpu_layers == 0 or not _is_wanted(config, is_there):
            return
        try:
            device = open_device()
            self.device = traced(device) if config.trace_vram else device
        except DeviceError as error:
            self._give_up(_cause(error, is_there))

    def place(
        self,
        file: GgufFile,
        model: ModelConfig,
        settings: EngineSettings,
        hardware: HardwareInfo,
        layers: range | None = None,
    ) -> Placed:
        """Returns the plan to run by and a warning; raises UsageError like `running_plan`.

        With `layers`, other machines run the other layers.
        """
        if self.device is not None:
            try:
                return self._place_on_gpu(self.device, file, model, settings, hardware)
            except (DeviceError, UnsupportedModelError) as error:
                self._give_up(error)
        config = replace(self._config, device="cpu", vram=None, gpu_layers=None)
        placement = Placement(config, file, model, settings, hardware, layers)
        return placement, *running_plan(placement, config)

    def _place_on_gpu(
        self,
        device: Device,
        file: GgufFile,
        model: ModelConfig,
        settings: EngineSettings,
        hardware: HardwareInfo,
    ) -> Placed:
        hardware = replace(hardware, free_vram=device.free_bytes)
        placement = Placement(self._config, file, model, settings, hardware)
        plan, warning = running_plan(placement, self._config)
        if plan is None:
            raise DeviceError("RAM is too small for what VRAM does not hold")
        if plan.first_gpu_layer == len(plan.layers):
            raise DeviceError(f"{device.name} has no room for a single layer")
        _require_words(device, self._config, plan)
        return placement, plan, warning

    def _give_up(self, error: SharpiError) -> None:
        if self._config.device == "cuda":
            raise error
        self.device = None
        self.notes = (f"the CPU computes, not the GPU: {error}",)


def _require_words(device: Device, config: RunConfig, plan: TierPlan) -> None:
    from sharpi.engine.backends.gpu.reach import require_words  # imports much, for a GPU only

    require_words(device, config, plan)


def _cause(error: DeviceError, is_there: Callable[[], bool]) -> DeviceError:
    """Returns the error to report: without a GPU, that one rather than missing packages."""
    if isinstance(error, MissingPackageError) and not is_there():
        return DeviceError(_NO_GPU)
    return error


def _is_wanted(config: RunConfig, is_there: Callable[[], bool]) -> bool:
    asked = config.device == "cuda" or bool(config.vram) or bool(config.gpu_layers)
    return asked or is_there()
