"""Counts what one pass of the model reads and multiplies, from its weights and routes."""

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct

from sharpi.gguf.quant_types import row_bytes
from sharpi.gguf.reader import GgufFile, Tensor
from sharpi.model.weights import ModelWeights
from sharpi.ops.cpu.program import IntArray
from sharpi.ops.interface import ExpertWeights, StackedMatrix


class Traffic(Struct, frozen=True):
    """The bytes of weights that passes read, and the operations that they compute."""

    weight_bytes: int = 0  # as they are encoded
    operations: int = 0  # two for each weight and token

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(self.weight_bytes + other.weight_bytes, self.operations + other.operations)


class WeightTraffic:
    """Counts the traffic of a model's passes; a pass reads a weight once, for all its tokens.

    The last layer's feed-forward and the output are computed only for the token whose logits are
    needed. Attention over the KV cache is not counted.
    """

    def __init__(self, file: GgufFile, weights: ModelWeights) -> None:
        self._experts = [
            None if layer.experts is None else _expert_weights(layer.experts)
            for layer in weights.layers
        ]
        dense_weights = _dense_weights(
            file,
            weights,
            {b.name for expert_weights in self._experts for b in expert_weights or ()},
        )
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
        """Counts one pass with logits of its last token.

        `routes`: (tokens, used) for each MoE layer; for the last layer only the first row counts.
        Layers of other machines have no routes here, and count like the last known layer.
        """
        read = self._shared_bytes + num_tokens * self._embedding_row_bytes
        operations = num_tokens * self._token_operations + self._output_operations
        remaining, chosen = iter(routes), np.zeros((0, 0), np.int32)
        for layer, expert_weights in enumerate(self._experts):
            if expert_weights is None:
                continue
            chosen = next(remaining, chosen)
            if layer == len(self._experts) - 1:
                chosen = chosen[:1]
            read += len(np.unique(chosen)) * _expert_bytes(expert_weights)
            operations += chosen.size * _expert_operations(expert_weights)
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


def _expert_weights(experts: ExpertWeights) -> tuple[StackedMatrix, ...]:
    return tuple(b for b in (experts.gate, experts.up, experts.down) if b is not None)


def _expert_bytes(expert_weights: Iterable[StackedMatrix]) -> int:
    num_bytes = 0
    for stacked in expert_weights:
        bias = 0 if stacked.bias is None else stacked.bias.nbytes
        num_bytes += stacked.expert_bytes + bias // stacked.num_experts
    return num_bytes


def _expert_operations(expert_weights: Iterable[StackedMatrix]) -> int:
    return sum(2 * b.rows * b.columns for b in expert_weights)


def _num_weights(tensors: Iterable[Tensor]) -> int:
    """Returns the number of weights in matrices; kernels do not multiply norms and biases."""
    return sum(t.num_values for t in tensors if len(t.shape) > 1)
