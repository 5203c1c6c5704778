"""The limits that a benchmark compares its rates with: of the CPU, of one GPU, or none.

Limits are measured in the same run as the model, on the processor that computes it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sharpi.engine.engine import Engine
from sharpi.engine.measure.weight_traffic import WeightTraffic
from sharpi.gguf.summary import is_expert_matrix
from sharpi.ops.cpu.machine_limits import MachineLimits
from sharpi.ops.cpu.program import IntArray

if TYPE_CHECKING:
    from sharpi.engine.backends.gpu.part import GpuPart


class Processor:
    """The processor that runs the model; this base class has no limits and counts no kernels."""

    device: str | None = None
    has_cpu_layers = True

    def measure(self, num_threads: int) -> None:
        """Measures the limits once more; the best results count."""

    def bus_bytes(self, routes: Sequence[IntArray]) -> int:
        """Returns the bytes that a pass moves over the bus, for routes (tokens, used) by layer."""
        return 0

    def bytes_per_second(self, num_threads: int, weight_bytes: int, bus_bytes: int) -> float | None:
        """Returns the highest rate of reading weights; None if there is no limit to compare with.

        `bus_bytes` of the `weight_bytes` cross a GPU's bus.
        """
        return None

    def operations_per_second(self, num_threads: int) -> float | None:
        """Returns the highest rate of int8 operations; None if it is not measured."""
        return None

    def launches(self, position: int) -> int | None:
        """Returns how many kernels are launched for a token at a position; None if not known."""
        return None


def processor_of(engine: Engine, traffic: WeightTraffic) -> Processor:
    """Returns the processor that runs the engine's model; several are represented as one."""
    if engine.runner.num_ranks > 1:
        return Processor()  # limits of this machine do not apply to several
    plan = engine.plan
    first_gpu_layer = engine.model_config.num_layers if plan is None else plan.first_gpu_layer
    if first_gpu_layer == engine.model_config.num_layers:
        return CpuProcessor(engine)
    from sharpi.engine.backends.gpu.part import GpuPart

    gpus = [part for part in engine.runner.parts if isinstance(part, GpuPart)]
    if first_gpu_layer or len(gpus) > 1:
        return SeveralProcessors(gpus, has_cpu_layers=first_gpu_layer > 0)
    (gpu,) = gpus
    assert plan is not None
    resident = [layer.vram_slots for layer in plan.layers if layer.num_experts]
    return GpuProcessor(gpu, BusTraffic(traffic, resident, engine.model_config.num_experts))


class CpuProcessor(Processor):
    """Measures the rate of reading the model's pages, without experts read by direct I/O."""

    def __init__(self, engine: Engine) -> None:
        instruction_set = engine.runner.settings.instruction_set
        self._limits = MachineLimits(_pages_in_memory(engine), instruction_set)

    def measure(self, num_threads: int) -> None:
        self._limits.measure(num_threads)

    def bytes_per_second(self, num_threads: int, weight_bytes: int, bus_bytes: int) -> float | None:
        return self._limits.bytes_per_second(num_threads)

    def operations_per_second(self, num_threads: int) -> float | None:
        return self._limits.operations_per_second(num_threads)


class GpuProcessor(Processor):
    """Measures the rates of the GPU's memory and, if experts are in RAM, of the bus."""

    has_cpu_layers = False

    def __init__(self, gpu: "GpuPart", bus: "BusTraffic") -> None:
        from sharpi.ops.cuda.gpu_limits import GpuLimits

        self.device = gpu.device.name
        self._gpu, self._bus, self._limits = gpu, bus, GpuLimits(gpu.device)

    def measure(self, num_threads: int) -> None:
        self._limits.measure()
        if self._bus.is_used:
            self._limits.measure_bus()

    def bus_bytes(self, routes: Sequence[IntArray]) -> int:
        return self._bus.of_pass(routes)

    def bytes_per_second(self, num_threads: int, weight_bytes: int, bus_bytes: int) -> float | None:
        """Returns the highest rate of reading weights in VRAM and RAM.

        VRAM and bus work at the same time, so the slower one limits it.
        """
        seconds = (weight_bytes - bus_bytes) / self._limits.bytes_per_second
        if bus_bytes:
            seconds = max(seconds, bus_bytes / self._limits.bus_bytes_per_second)
        return weight_bytes / seconds

    def launches(self, position: int) -> int | None:
        return len(self._gpu.calls_of_token(position))


class SeveralProcessors(Processor):
    """A CPU and GPUs, or several GPUs: has no limits, as those of one do not apply to all."""

    def __init__(self, gpus: Sequence["GpuPart"], *, has_cpu_layers: bool) -> None:
        self.device = " and ".join(gpu.device.name for gpu in gpus)
        self.has_cpu_layers = has_cpu_layers
        self._gpus = tuple(gpus)

    def launches(self, position: int) -> int | None:
        return sum(len(gpu.calls_of_token(position)) for gpu in self._gpus)


class BusTraffic:
    """Counts the bytes of experts that a GPU reads from RAM.

    `resident`: by MoE layer, the number of experts on the GPU; these have the lowest ids.
    """

    def __init__(self, traffic: WeightTraffic, resident: Sequence[int], num_experts: int) -> None:
        self._traffic, self._resident = traffic, tuple(resident)
        self._nobody = [np.zeros((1, 0), np.int32)] * len(self._resident)
        self.is_used = any(count < num_experts for count in self._resident)

    def of_pass(self, routes: Sequence[IntArray]) -> int:
        """Returns the bytes of one pass; of the last layer only the first row counts."""
        if not self.is_used:
            return 0
        rows = [*routes[:-1], *(last[:1] for last in routes[-1:])]
        elsewhere = [
            ids[ids >= count][None] for ids, count in zip(rows, self._resident, strict=True)
        ]
        read, least = (self._traffic.of_pass(0, r).weight_bytes for r in (elsewhere, self._nobody))
        return read - least


def _pages_in_memory(engine: Engine) -> list[npt.NDArray[np.uint8]]:
    """Returns the bytes of all weights, without experts that are read by direct I/O."""
    tensors = engine.file.tensors.values()
    return [t.data for t in tensors if not (engine.streams_experts and is_expert_matrix(t.name))]
