"""Each native operation against the NumPy reference; then batches, threads and windows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from attention_models import HIDDEN, TABLE, VOCAB, error
from for_each import for_each
from msgspec.structs import replace
from replay import AVAILABLE, Native, matrix, reference, stacked

from sharpi.errors import SharpiError
from sharpi.ops.attention_shape import HeadGate, RopeTable
from sharpi.ops.cpu import abi
from sharpi.ops.interface import Activation, ExpertWeights, Router, Scoring, Unary

pytestmark = pytest.mark.native
RNG = np.random.default_rng(1)
IDS = RNG.integers(0, VOCAB, 9).tolist()


def norm_weight(n: int) -> np.ndarray:
    return (1 + 0.2 * np.random.default_rng(n).standard_normal(n)).astype(np.float32)


MATRICES = [matrix(RNG, 33, HIDDEN, bias=True), matrix(RNG, 64, HIDDEN)]
SQUARE = matrix(RNG, HIDDEN, HIDDEN)
EXPERT_WEIGHTS = ExpertWeights(
    stacked(RNG, 8, 40, HIDDEN), stacked(RNG, 8, 40, HIDDEN), stacked(RNG, 8, HIDDEN, 40)
)
SHARED = ExpertWeights(
    stacked(RNG, 1, 72, HIDDEN), stacked(RNG, 1, 72, HIDDEN), stacked(RNG, 1, HIDDEN, 72)
)
ROUTER, GATE = matrix(RNG, 8, HIDDEN), matrix(RNG, 1, HIDDEN)
HEADS = stacked(RNG, 4, 40, HIDDEN // 4)
BIASED = ExpertWeights(
    *(replace(b, bias=RNG.standard_normal((8, b.rows)).astype(np.float32)) for b in (
        stacked(RNG, 8, 40, HIDDEN), stacked(RNG, 8, 40, HIDDEN), stacked(RNG, 8, HIDDEN, 40)
    ))
)  # fmt: skip


def moe(
    expert_weights: ExpertWeights = EXPERT_WEIGHTS,
    activation: Activation = Activation.SILU,
    **options: Any,
) -> Callable[[Any], Any]:
    def model(ops: Any) -> Any:
        x = ops.embed(TABLE, 3.0)
        (logits,) = ops.linear(x, [ROUTER])
        route = ops.route(logits, Router(8, 3, **options))
        return ops.select_outputs(ops.experts(x, expert_weights, activation, route, x, 0.5))

    return model


def gate_heads(activation: HeadGate, num_gates: int) -> Callable[[Any], Any]:
    def model(ops: Any) -> Any:
        x = ops.embed(TABLE, 3.0)
        (gate,) = ops.linear(x, [matrix(np.random.default_rng(num_gates), num_gates, HIDDEN)])
        return ops.select_outputs(ops.gate_heads(gate, ops.scale(x, 1.0), activation))

    return model


def wide(ops: Any) -> Any:
    return ops.select_outputs(ops.embed(TABLE, 40.0))


def shared(ops: Any) -> Any:
    x = ops.embed(TABLE, 1.0)
    (gate,) = ops.linear(x, [GATE])
    return ops.select_outputs(
        ops.experts(x, SHARED, Activation.GELU_TANH, (None, ops.unary(gate, Unary.SIGMOID)), x)
    )


ONE_OP: dict[str, Callable[[Any], Any]] = {
    "embed": lambda ops: ops.select_outputs(ops.embed(TABLE, 2.5)),
    "rms_norm": lambda ops: ops.rms_norm(
        ops.select_outputs(ops.embed(TABLE, 1.0)), norm_weight(HIDDEN), 1e-5
    ),
    "rms_norm per head": lambda ops: ops.rms_norm(
        ops.select_outputs(ops.embed(TABLE, 1.0)), norm_weight(24), 1e-5, 4
    ),
    "rms_norm per head, own weights": lambda ops: ops.rms_norm(
        ops.select_outputs(ops.embed(TABLE, 1.0)), norm_weight(HIDDEN), 1e-5, 4
    ),
    "linear, first": lambda ops: ops.select_outputs(ops.linear(ops.embed(TABLE, 1.0), MATRICES)[0]),
    "linear, second": lambda ops: ops.select_outputs(
        ops.linear(ops.embed(TABLE, 1.0), MATRICES)[1]
    ),
    "linear_add": lambda ops: ops.select_outputs(
        ops.linear_add(ops.embed(TABLE, 1.0), SQUARE, ops.embed(TABLE, 2.0), 0.3)
    ),
    "rope, half": lambda ops: ops.select_outputs(
        ops.rope(ops.embed(TABLE, 1.0), 4, ops.rope_angles(RopeTable(norm_weight(10), 1.1)), False)
    ),
    "rope, interleaved": lambda ops: ops.select_outputs(
        ops.rope(ops.embed(TABLE, 1.0), 4, ops.rope_angles(RopeTable(norm_weight(12))), True)
    ),
    "dense": lambda ops: ops.select_outputs(
        ops.experts(ops.embed(TABLE, 1.0), SHARED, Activation.RELU2, None, None, 2.0)
    ),
    "gelu": lambda ops: ops.select_outputs(
        ops.experts(ops.embed(TABLE, 1.0), SHARED, Activation.GELU, None, None)
    ),
    "shared expert": shared,
    "experts": moe(),
    "experts, sigmoid": moe(scoring=Scoring.SIGMOID, scale=2.5, bias=norm_weight(8)),
    "experts, softmax of chosen": moe(scoring=Scoring.SOFTMAX_OF_CHOSEN, normalise=False),
    "experts, sparse mixer": moe(scoring=Scoring.SPARSE_MIXER),
    "experts, biases": moe(BIASED, Activation.CLAMPED_SWIGLU),
    "experts, silu to 7": moe(activation=Activation.LIMITED_SILU_7),
    "experts, silu to 16": moe(activation=Activation.LIMITED_SILU_16),
    "experts without gates": moe(replace(BIASED, gate=None), Activation.RELU2),
    "experts with weighed inputs": moe(replace(BIASED, weighs_input=True)),
    "layer_norm": lambda ops: ops.layer_norm(
        ops.select_outputs(ops.embed(TABLE, 1.0)), norm_weight(HIDDEN), norm_weight(HIDDEN), 1e-5
    ),
    "head_linear": lambda ops: ops.select_outputs(ops.head_linear(ops.embed(TABLE, 1.0), HEADS)),
    "join": lambda ops: ops.select_outputs(
        ops.join(ops.embed(TABLE, 1.0), ops.linear(ops.embed(TABLE, 1.0), MATRICES[1:])[0], 8)
    ),
    "gate_heads": gate_heads(HeadGate.SIGMOID, 4),
    "gate_heads, softplus": gate_heads(HeadGate.SOFTPLUS, 4),
    "gate_heads, each value": gate_heads(HeadGate.SOFTPLUS, HIDDEN),
    "scale_by_position": lambda ops: ops.select_outputs(
        ops.scale_by_position(ops.embed(TABLE, 1.0), 3, 0.7, 0)
    ),
    "scale_by_position, one later": lambda ops: ops.select_outputs(
        ops.scale_by_position(ops.embed(TABLE, 1.0), 3, 0.7, 1)
    ),
    "experts, groups": moe(scoring=Scoring.SIGMOID, num_groups=4, groups_used=2),
    "experts, groups of softmax scores": moe(num_groups=4, groups_used=2),
    "soft cap": lambda ops: ops.unary(wide(ops), Unary.SOFT_CAP, 2.0),
    "clamp": lambda ops: ops.unary(wide(ops), Unary.CLAMP, 2.0),
    "xielu": lambda ops: ops.unary(wide(ops), Unary.XIELU, 0.8, 1.3, 0.5, -1e-6),
    "scale": lambda ops: ops.scale(ops.select_outputs(ops.embed(TABLE, 1.0)), 0.25),
}


@for_each("name", ONE_OP)
@pytest.mark.parametrize("instruction_set", AVAILABLE)
def test_operation_matches_the_reference(name: str, instruction_set: str) -> None:
    native = Native(ONE_OP[name], instruction_set=instruction_set)
    assert error(native.run([IDS]), reference(ONE_OP[name], [IDS])) < 1e-5


@pytest.mark.parametrize("instruction_set", AVAILABLE)
def test_experts_give_the_same_bits_in_any_batch(instruction_set: str) -> None:
    ids = np.random.default_rng(6).integers(0, VOCAB, 70).tolist()
    native = Native(moe(), instruction_set=instruction_set)
    assert np.array_equal(native.run([[i] for i in ids]), native.run([ids]))


def test_a_struct_of_another_size_is_refused() -> None:
    native = Native(ONE_OP["embed"])
    with pytest.raises(SharpiError, match=r"another version \(operation 0 of"):
        native.program.append(abi.OpKind.EMBED, abi.GatherParams())
    with pytest.raises(SharpiError, match="operation 99 "):
        native.program.append(99, abi.GatherParams())
