"""Loads the matrices of a feed-forward: gate (if there is one), up and down; two may be fused."""

import numpy as np
from msgspec.structs import replace

from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import ExpertWeights


def load_expert_weights(
    tensors: TensorSource, pattern: str, hidden: int, num_experts: int = 1, *, gated: bool = True
) -> ExpertWeights:
    """Loads gate and up (width, hidden) and down (hidden, width), stacked for several experts.

    `pattern` is the tensors' name with %s for the matrix. Raises ModelFileError for a missing or
    misshapen tensor.
    """
    if gated and tensors.has(f"{pattern % 'gate_up'}.weight"):
        return _load_fused(tensors, pattern, hidden, num_experts)
    gate = tensors.stacked(pattern % "gate", num_experts, (None, hidden)) if gated else None
    width = gate.rows if gate else None
    up = tensors.stacked(pattern % "up", num_experts, (width, hidden))
    return ExpertWeights(
        gate, up, tensors.stacked(pattern % "down", num_experts, (hidden, up.rows))
    )


def optional_expert_weights(
    tensors: TensorSource, pattern: str, hidden: int, *, gated: bool = True
) -> ExpertWeights | None:
    """Loads a feed-forward of one expert; returns None if the file has no such tensors."""
    if not tensors.has(f"{pattern % 'up'}.weight"):
        return None
    return load_expert_weights(tensors, pattern, hidden, gated=gated)


def _load_fused(
    tensors: TensorSource, pattern: str, hidden: int, num_experts: int
) -> ExpertWeights:
    """Loads experts whose gate and up are one matrix: first the gate's rows, then up's."""
    both = tensors.stacked(pattern % "gate_up", num_experts, (None, hidden))
    width = both.rows // 2
    gate_bias, up_bias = (None, None) if both.bias is None else np.hsplit(both.bias, [width])
    gate = replace(both, rows=width, bias=gate_bias)
    up = replace(both, rows=width, bias=up_bias, first_row=width)
    return ExpertWeights(gate, up, tensors.stacked(pattern % "down", num_experts, (hidden, width)))
