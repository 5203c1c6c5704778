"""Loads the matrices of a feed-forward: gate (optional), up and down; gate and up may be fused."""

import numpy as np
from msgspec.structs import replace

from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import ExpertWeights


def load_expert_weights(
    tensors: TensorSource, pattern: str, hidden: int, num_experts: int = 1, *, gated: bool = True
) -> ExpertWeights:
    """Loads gate and up (width, hidden) and down (hidden, width), stacked if there are experts.

    `pattern` is the name of the tensors, with %s in place of gate, up or down. Raises
    ModelFileError for a missing or misshapen tensor.
    """
    if gated and tensors.has(f"{pattern % 'gate_up'}.weight"):
        return _load_fused(tensors, pattern, hidden, num_experts)
    if gated and num_experts == 1 and _up_holds_gate(tensors, pattern, hidden):
        return _load_fused(tensors, pattern, hidden, num_experts, both="up")
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


def _up_holds_gate(tensors: TensorSource, pattern: str, hidden: int) -> bool:
    """Returns True if the tensor `up` also holds the rows of the gate (Granite SWA).

    The file then has no separate gate tensor.
    """
    if tensors.has(f"{pattern % 'gate'}.weight") or not tensors.has(f"{pattern % 'down'}.weight"):
        return False
    up = tensors.stacked(pattern % "up", 1, (None, hidden))
    return up.rows == 2 * tensors.tensor(f"{pattern % 'down'}.weight").shape[-1]


def _load_fused(
    tensors: TensorSource, pattern: str, hidden: int, num_experts: int, both: str = "gate_up"
) -> ExpertWeights:
    """Loads experts of which gate and up are fused: first the gate's rows, then those of up.

    `both` replaces %s in the name of the fused matrix.
    """
    fused = tensors.stacked(pattern % both, num_experts, (None, hidden))
    width = fused.rows // 2
    gate_bias, up_bias = (None, None) if fused.bias is None else np.hsplit(fused.bias, [width])
    gate = replace(fused, rows=width, bias=gate_bias)
    up = replace(fused, rows=width, bias=up_bias, first_row=width)
    return ExpertWeights(gate, up, tensors.stacked(pattern % "down", num_experts, (hidden, width)))
