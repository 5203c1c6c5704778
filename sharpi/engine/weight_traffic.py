"""What one pass of the model reads and multiplies: counted from weights and routes taken."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sharpi.gguf.quant_types import row_bytes
from sharpi.gguf.reader import GgufFile, Tensor
from sharpi.model.weights import ModelWeights
from sharpi.ops.interface import Bank, ExpertBanks
from sharpi.ops.program import IntArray


@dataclass(frozen=True, slots=True)
class Traffic:
    """`weight_bytes` read, as they are encoded, and `operations`, two for each weight met."""

    weight_bytes: int = 0
    operations: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(self.weight_bytes + other.weight_bytes, self.operations + other.operations)


class WeightTraffic:
    """Counts passes of one model; a weight is read once a pass, however many tokens share it.

    Attention over the KV cache is left out on both sides.
    """

    def __init__(self, file: GgufFile, weights: ModelWeights) -> None:
        self._experts = [
            _banks(layer.feed_forward.experts)
            for layer in weights.layers
            if layer.feed_forward.experts is not None
        ]
        routed = {bank.name for banks in self._experts for bank in banks}
        apart = {*routed, weights.embedding.name, weights.output.name}
        trunk = [
            tensor
            for name, tensor in file.tensors.items()
            if name not in weights.unused and name.rpartition(".")[0] not in apart
        ]
        self._trunk = Traffic(sum(t.num_bytes for t in trunk), 2 * _num_weights(trunk))
        output, embedding = weights.output, weights.embedding
        self._output = Traffic(output.data.nbytes, 2 * output.rows * output.columns)
        self._embedding_row_bytes = row_bytes(embedding.quant_type, embedding.columns)

    def of_pass(self, num_tokens: int, routes: Sequence[IntArray]) -> Traffic:
        """One pass with logits of its last token; `routes`: (tokens, used) for each MoE layer."""
        read = self._trunk.weight_bytes + self._output.weight_bytes
        read += num_tokens * self._embedding_row_bytes
        operations = num_tokens * self._trunk.operations + self._output.operations
        for banks, chosen in zip(self._experts, routes, strict=True):
            read += len(np.unique(chosen)) * _expert_bytes(banks)
            operations += chosen.size * _expert_operations(banks)
        return Traffic(read, operations)


def _banks(experts: ExpertBanks) -> tuple[Bank, ...]:
    return experts.gate, experts.up, experts.down


def _expert_bytes(banks: Iterable[Bank]) -> int:
    num_bytes = 0
    for bank in banks:
        bias = 0 if bank.bias is None else bank.bias.nbytes
        num_bytes += (bank.data.nbytes + bias) // bank.num_experts
    return num_bytes


def _expert_operations(banks: Iterable[Bank]) -> int:
    return sum(2 * b.rows * b.columns for b in banks)


def _num_weights(tensors: Iterable[Tensor]) -> int:
    """Values of the matrices; norms and biases are not multiplied by the kernels."""
    return sum(t.num_values for t in tensors if len(t.shape) > 1)
