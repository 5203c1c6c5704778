"""GpuChoice: decides which processors compute, and plans the memory for that choice.

A GPU is used if there is one. If something prevents that, the CPU computes, and a note has the
reason. With `--device cuda` the reason is raised instead. Further GPUs are used where the first one
does not hold the model, or where they are named. How fast GPUs read their memory is measured for
dividing layers among them or among machines.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from sharpi.device.device import Device
from sharpi.engine.placement.placement import Placement, running_plan
from sharpi.errors import DeviceError, MissingPackageError, SharpiError, UnsupportedModelError
from sharpi.gguf.reader import GgufFile
from sharpi.hardware.info import HardwareInfo, has_gpu, probe_gpus
from sharpi.model.config import ModelConfig
from sharpi.settings import RunConfig
from sharpi.tiers.gpu import RESERVE_BYTES
from sharpi.tiers.plan import Tier, TierPlan
from sharpi.tiers.settings import EngineSettings

_BYTES_A_TRY = 256 << 20  # beyond any GPU's cache


class GpuRates(Struct, frozen=True):
    """The VRAM that one machine's GPUs have for layers, and the bytes per second of reading it."""

    num_bytes: int
    read_rate: float


NO_GPUS = GpuRates(0, 0.0)


def gpu_rates(devices: Sequence[Device], config: RunConfig) -> GpuRates:
    """Returns the VRAM that GPUs have for layers, buffers included, and the rate of reading it."""
    limits = config.vrams or (config.vram,) * len(devices)
    free = [
        max(0, min(device.free_bytes, limit or device.free_bytes) - RESERVE_BYTES)
        for device, limit in zip(devices, limits, strict=False)
    ]
    if not sum(free):
        return NO_GPUS
    seconds = sum(own / _rate(device) for own, device in zip(free, devices, strict=False))
    return GpuRates(sum(free), sum(free) / seconds)


def measured_rates(devices: Sequence[Device]) -> tuple[float, ...]:
    """Returns bytes per second of each GPU; empty for one GPU, or if all are alike."""
    if len({device.name for device in devices}) < 2:
        return ()
    return tuple(map(_rate, devices))


def _rate(device: Device) -> float:
    from sharpi.ops.cuda.gpu_limits import filled_memory, read_bytes_per_second

    size = min(_BYTES_A_TRY, device.free_bytes // 2)
    return read_bytes_per_second(device, filled_memory(device, size // 16 * 16))


OpenGpu = Callable[[int], Device]  # of CUDA's index
_NO_GPU = "no NVIDIA GPU was found; `sharpi doctor` shows what this machine has"
Placed = tuple[Placement, TierPlan | None, str | None]
Plan = Callable[[RunConfig, HardwareInfo], Placed]


def is_there() -> bool:
    """Returns True if an NVIDIA GPU is plugged in, or a driver reports one elsewhere (WSL)."""
    return has_gpu() or probe_gpus() is not None


class GpuChoice:
    """Chooses `devices`, none if the CPU computes everything; `notes` say why a GPU is not used."""

    def __init__(
        self, config: RunConfig, open_device: OpenGpu, is_there: Callable[[], bool] = is_there
    ) -> None:
        self._config = config
        self.notes: tuple[str, ...] = ()
        self.devices: tuple[Device, ...] = ()
        if config.device == "cpu" or config.gpu_layers == 0 or not _is_wanted(config, is_there):
            return
        first, *others = config.gpus or (0,)
        try:
            device = open_device(first)
            self.devices = (self._traced(device),)
            for index in others:
                self._add(index)
        except DeviceError as error:
            self._give_up(_cause(error, is_there))

    def _traced(self, device: Device) -> Device:
        if not self._config.trace_vram:
            return device
        from sharpi.device.counting import traced

        return traced(device)

    def _add(self, index: int) -> None:
        """Opens a further GPU; raises DeviceError if it is missing or cannot be used."""
        self.devices = (*self.devices, self._traced(self.devices[0].open_peer(index)))

    def _add_usable(self, indices: Iterable[int]) -> None:
        """Opens further GPUs, and adds a note for each that cannot be used."""
        for index in indices:
            try:
                self._add(index)
            except DeviceError as error:
                self.notes = (*self.notes, f"cuda:{index} is not used: {error}")

    def place(
        self,
        file: GgufFile,
        model: ModelConfig,
        settings: EngineSettings,
        hardware: HardwareInfo,
        layers: range | None = None,
    ) -> Placed:
        """Returns placement, plan and warning, without GPUs that cannot run it, or UsageError."""

        def plan(config: RunConfig, hardware: HardwareInfo) -> Placed:
            placement = Placement(config, file, model, settings, hardware, layers)
            return placement, *running_plan(placement, config)

        if self.devices:
            try:
                return self._place_on_gpus(plan, hardware)
            except (DeviceError, UnsupportedModelError) as error:
                self._give_up(error)
        return plan(without_gpu(self._config), hardware)

    def _place_on_gpus(self, plan: Plan, hardware: HardwareInfo) -> Placed:
        placed = plan(self._config, self._measured(hardware))
        first = self.devices[0]
        if not self._config.gpus and first.num_gpus > 1 and not _is_whole(*placed[:2]):
            self._add_usable(range(1, first.num_gpus))
            placed = plan(self._config, self._measured(hardware))
        _, found, _ = placed
        if found is None:
            raise DeviceError("RAM is too small for what VRAM does not hold")
        if found.first_gpu_layer == len(found.layers):
            names = " or ".join(device.name for device in self.devices)
            raise DeviceError(f"{names} has no room for a single layer")
        # It imports much, for a GPU only.
        from sharpi.engine.backends.gpu.miss_capabilities import require_stream_memory_ops

        require_stream_memory_ops(first, self._config, found)
        return placed

    def _measured(self, hardware: HardwareInfo) -> HardwareInfo:
        """Returns the hardware info with the GPUs' free VRAM and measured read rates."""
        frees = tuple(device.free_bytes for device in self.devices)
        rates = () if self._config.tensor_split else measured_rates(self.devices)
        return replace(hardware, free_vram=frees[0], free_vrams=frees, vram_rates=rates)

    def description(self, plan: TierPlan | None) -> str | None:
        """Returns the GPUs' names and first layers, on which bits depend; None on the CPU."""
        if not self.devices:
            return None
        first, *others = plan.gpus if plan is not None else ()
        rest = "".join(f"; {self.devices[each.gpu].name}, {each.first}" for each in others)
        return f"{self.devices[first.gpu].name}, {first.first}{rest}"

    def _give_up(self, error: SharpiError) -> None:
        if self._config.device == "cuda":
            raise error
        self.devices = ()
        self.notes = (f"the CPU computes, not the GPU: {error}",)


def without_gpu(config: RunConfig) -> RunConfig:
    """Returns the configuration with which the CPU computes the model."""
    return replace(
        config, device="cpu", vram=None, vrams=(), gpus=(), tensor_split=(), gpu_layers=None
    )


def _is_whole(placement: Placement, plan: TierPlan | None) -> bool:
    """Returns True if VRAM holds all layers, with all experts; an MTP head may be elsewhere."""
    own = placement.facts.without_head.own_layers
    return plan is not None and all(
        layer.dense_weights is Tier.VRAM and layer.vram_slots == layer.num_experts
        for layer in plan.layers[own.start : own.stop]
    )


def _cause(error: DeviceError, is_there: Callable[[], bool]) -> DeviceError:
    """Returns the error to report: that there is no GPU, rather than that packages are missing."""
    if isinstance(error, MissingPackageError) and not is_there():
        return DeviceError(_NO_GPU)
    return error


def _is_wanted(config: RunConfig, is_there: Callable[[], bool]) -> bool:
    asked = bool(config.vram) or bool(config.gpu_layers) or bool(config.tensor_split)
    return config.device == "cuda" or asked or is_there()
