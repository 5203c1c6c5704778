"""The limits that a benchmark compares its rates with: of the CPU, of one GPU, or none.

Limits are measured in the same run as the model, on the processor that computes it.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.engine.engine import Engine
from sharpi.gguf.header import is_expert_matrix
from sharpi.gguf.quant_types import row_bytes
from sharpi.gguf.reader import GgufFile, Tensor
from sharpi.model.weights import ModelWeights
from sharpi.ops.cpu.machine_limits import MachineLimits
from sharpi.ops.cpu.program import IntArray
from sharpi.ops.interface import ExpertWeights, StackedMatrix

if TYPE_CHECKING:
    from sharpi.engine.backends.gpu.part import GpuPart
    from sharpi.ops.cuda.gpu_limits import GpuLimits


class Traffic(Struct, frozen=True):
    """The bytes of weights that passes read, and the operations that they compute."""

    weight_bytes: int = 0  # as they are encoded
    operations: int = 0  # two for each weight and token

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(self.weight_bytes + other.weight_bytes, self.operations + other.operations)


class WeightTraffic:
    """Counts traffic of passes, which read a weight once; the KV cache is not counted."""

    def __init__(self, file: GgufFile, weights: ModelWeights) -> None:
        matrices = [_matrices(layer.experts) for layer in weights.layers]
        routed = {matrix.name for own in matrices for matrix in own}
        # Of each layer with experts, the bytes and operations of one.
        self._experts = [_of_expert(own) if own else None for own in matrices]
        dense_weights = _dense_weights(file, weights, routed)
        last = [
            t for t in dense_weights if t.name.startswith(f"blk.{len(weights.layers) - 1}.ffn_")
        ]
        output, embedding = weights.output, weights.embedding
        self._shared_bytes = sum(t.num_bytes for t in dense_weights) + output.data.nbytes
        self._embedding_row_bytes = row_bytes(embedding.quant_type, embedding.columns)
        once = 2 * _num_weights(last)
        self._token_operations = 2 * _num_weights(dense_weights) - once
        self._output_operations = once + 2 * output.rows * output.columns

    def of_pass(self, num_tokens: int, routes: Sequence[IntArray]) -> Traffic:
        """Counts a pass with logits of its last token, by routes (tokens, used) of MoE layers."""
        read = self._shared_bytes + num_tokens * self._embedding_row_bytes
        operations = num_tokens * self._token_operations + self._output_operations
        remaining, chosen = iter(routes), np.zeros((0, 0), np.int32)
        for layer, expert in enumerate(self._experts):
            if expert is None:
                continue
            chosen = next(remaining, chosen)
            if layer == len(self._experts) - 1:
                chosen = chosen[:1]
            read += len(np.unique(chosen)) * expert.weight_bytes
            operations += chosen.size * expert.operations
        return Traffic(read, operations)


def _dense_weights(file: GgufFile, weights: ModelWeights, routed: set[str]) -> list[Tensor]:
    """Returns the tensors that every pass reads, except the output and the embedding."""
    apart = {*routed, weights.embedding.name, weights.output.name}
    unused = set(weights.unused)
    return [
        tensor
        for name, tensor in file.tensors.items()
        if name not in unused and name.rpartition(".")[0] not in apart
    ]


def _matrices(experts: ExpertWeights | None) -> list[StackedMatrix]:
    found = () if experts is None else (experts.gate, experts.up, experts.down)
    return [matrix for matrix in found if matrix is not None]


def _of_expert(matrices: Iterable[StackedMatrix]) -> Traffic:
    """Returns the traffic of one expert with one token."""
    total = Traffic()
    for own in matrices:
        bias = 0 if own.bias is None else own.bias.nbytes // own.num_experts
        total += Traffic(own.expert_bytes + bias, 2 * own.rows * own.columns)
    return total


def _num_weights(tensors: Iterable[Tensor]) -> int:
    """Returns the number of weights in matrices; kernels do not multiply norms and biases."""
    return sum(t.num_values for t in tensors if len(t.shape) > 1)


class Processor:
    """The processors of a model; limits only apply to one alone, a `cpu` or GPU with `bus`."""

    def __init__(
        self,
        gpus: Sequence["GpuPart"] = (),
        *,
        cpu: MachineLimits | None = None,
        bus: "BusTraffic | None" = None,
        has_cpu_layers: bool = True,
    ) -> None:
        self.device = " and ".join(gpu.device.name for gpu in gpus) or None
        self.has_cpu_layers = has_cpu_layers
        self._gpus, self._cpu, self._bus = tuple(gpus), cpu, bus
        self._gpu: GpuLimits | None = None
        if bus is not None:
            from sharpi.ops.cuda import gpu_limits

            self._gpu = gpu_limits.GpuLimits(gpus[0].device)

    def measure(self, num_threads: int) -> None:
        """Measures the limits once more; the best results count."""
        if self._cpu is not None:
            self._cpu.measure(num_threads)
        if self._gpu is not None and self._bus is not None:
            self._gpu.measure()
            if self._bus.is_used:
                self._gpu.measure_bus()

    def bus_bytes(self, routes: Sequence[IntArray]) -> int:
        """Returns the bytes that a pass moves over the bus, for routes (tokens, used) by layer."""
        return 0 if self._bus is None else self._bus.of_pass(routes)

    def bytes_per_second(self, num_threads: int, weight_bytes: int, bus_bytes: int) -> float | None:
        """Returns the highest rate of reading weights, VRAM beside the bus; None without limit."""
        if self._cpu is not None:
            return self._cpu.bytes_per_second(num_threads)
        if self._gpu is None:
            return None
        seconds = (weight_bytes - bus_bytes) / self._gpu.bytes_per_second
        if bus_bytes:
            seconds = max(seconds, bus_bytes / self._gpu.bus_bytes_per_second)
        return weight_bytes / seconds

    def operations_per_second(self, num_threads: int) -> float | None:
        """Returns the highest rate of int8 operations; None if it is not measured."""
        return None if self._cpu is None else self._cpu.operations_per_second(num_threads)

    def launches(self, position: int) -> int | None:
        """Returns how many kernels are launched for a token at a position; None without a GPU."""
        return sum(len(gpu.calls_of_token(position)) for gpu in self._gpus) if self._gpus else None


def processor_of(engine: Engine, traffic: WeightTraffic) -> Processor:
    """Returns the processor that runs the engine's model; several are represented as one."""
    if engine.runner.num_ranks > 1:
        return Processor()  # limits of this machine do not apply to several
    plan, num_layers = engine.plan, engine.model_config.num_layers
    if plan is None or plan.first_gpu_layer == num_layers:
        instruction_set = engine.runner.settings.instruction_set
        return Processor(cpu=MachineLimits(_pages_in_memory(engine), instruction_set))
    from sharpi.engine.backends.gpu.part import GpuPart

    gpus = [part for part in engine.runner.parts if isinstance(part, GpuPart)]
    if plan.first_gpu_layer or len(gpus) > 1:
        return Processor(gpus, has_cpu_layers=plan.first_gpu_layer > 0)
    resident = [layer.vram_slots for layer in plan.layers if layer.num_experts]
    bus = BusTraffic(traffic, resident, engine.model_config.num_experts)
    return Processor(gpus, bus=bus, has_cpu_layers=False)


class BusTraffic:
    """Counts bytes of experts read from RAM; `resident`, with the lowest ids, are on the GPU."""

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
