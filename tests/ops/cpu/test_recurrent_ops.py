"""The native recurrent operations against the NumPy reference, in all steps and threads."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from replay import AVAILABLE, Native, matrix, reference

from sharpi.ops.interface import Activation
from sharpi.ops.recurrent import (
    ConvolutionShape,
    DecayRates,
    DeltaNetShape,
    Mamba2Shape,
    RecurrentShape,
)

pytestmark = pytest.mark.native
VOCAB, HIDDEN = 50, 96
TABLE = matrix(np.random.default_rng(1), VOCAB, HIDDEN)
Model = Callable[[Any], Any]


def tokens(count: int) -> list[int]:
    return [int(i) for i in np.random.default_rng(count).integers(0, VOCAB, count)]


def rates(rng: np.random.Generator, heads: int, keys: int = 1, floor: float = 0.0) -> DecayRates:
    a, dt_bias = -np.exp(rng.standard_normal(heads)), rng.standard_normal(heads * keys)
    return DecayRates(a.astype(np.float32), dt_bias.astype(np.float32), floor)


def convolution(shape: ConvolutionShape, *, silu: bool = True, has_bias: bool = True) -> Model:
    rng = np.random.default_rng(2)
    into = matrix(rng, shape.channels, HIDDEN)
    weight = rng.standard_normal((shape.kernel, shape.channels)).astype(np.float32)
    bias = rng.standard_normal(shape.channels).astype(np.float32) if has_bias else None

    def model(ops: Any) -> Any:
        (x,) = ops.linear(ops.embed(TABLE, 8.0), [into])
        return ops.select_outputs(ops.convolve(x, weight, bias, shape, silu=silu))

    return model


def delta_net(shape: DeltaNetShape) -> Model:
    rng, heads = np.random.default_rng(3), shape.num_value_heads
    keys = shape.key_dim if shape.decays_by_key else 1
    into = [matrix(rng, rows, HIDDEN) for rows in (shape.width, heads, heads * keys)]
    decays = rates(rng, heads, keys, -5.0 if keys == 16 else 0.0)

    def model(ops: Any) -> Any:
        qkv, beta, alpha = ops.linear(ops.embed(TABLE, 8.0), into)
        return ops.select_outputs(ops.delta_net(qkv, beta, alpha, decays, shape))

    return model


def mamba2(shape: Mamba2Shape) -> Model:
    rng = np.random.default_rng(4)
    into = [matrix(rng, rows, HIDDEN) for rows in (shape.width, shape.num_heads)]
    decays, skip = rates(rng, shape.num_heads), rng.standard_normal(shape.num_heads)

    def model(ops: Any) -> Any:
        xbc, dt = ops.linear(ops.embed(TABLE, 8.0), into)
        return ops.select_outputs(ops.mamba2(xbc, dt, decays, skip.astype(np.float32), shape))

    return model


def model_of(shape: RecurrentShape) -> Model:
    if isinstance(shape, ConvolutionShape):
        return convolution(shape)
    return delta_net(shape) if isinstance(shape, DeltaNetShape) else mamba2(shape)


SHAPES: dict[str, RecurrentShape] = {
    "convolution": ConvolutionShape(0, 300, 4),
    "convolution, short": ConvolutionShape(0, 64, 3),
    "convolution, odd width": ConvolutionShape(0, 37, 2),
    "delta net": DeltaNetShape(0, 2, 4, 32, 32),
    "delta net, tiled": DeltaNetShape(0, 2, 6, 16, 16, "tiled"),
    "delta net, real head": DeltaNetShape(0, 1, 1, 128, 128),
    "delta net, odd heads": DeltaNetShape(0, 3, 3, 10, 21),
    "delta net, decays of keys": DeltaNetShape(0, 2, 2, 24, 40, decays_by_key=True),
    "delta net, decays with a floor": DeltaNetShape(0, 2, 2, 16, 16, decays_by_key=True),
    "mamba2": Mamba2Shape(0, 4, 2, 32, 16),
    "mamba2, real head": Mamba2Shape(0, 2, 1, 64, 128),
    "mamba2, odd heads": Mamba2Shape(0, 6, 3, 7, 10),
}


def error(out: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(out - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("instruction_set", AVAILABLE)
def test_operation_matches_the_reference(name: str, instruction_set: str) -> None:
    shape, ids = SHAPES[name], tokens(40)
    model = model_of(shape)
    native = Native(model, instruction_set=instruction_set, states=[shape])
    assert error(native.run([ids]), reference(model, [ids])) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("instruction_set", AVAILABLE)
def test_any_steps_and_threads_give_the_same_bits(name: str, instruction_set: str) -> None:
    shape, ids = SHAPES[name], tokens(40)
    native = Native(model_of(shape), threads=3, instruction_set=instruction_set, states=[shape])
    whole = native.run([ids], threads=1)
    assert np.array_equal(native.run([ids[:1], ids[1:3], ids[3:20], ids[20:]], threads=3), whole)
    assert np.array_equal(native.run([[i] for i in ids], threads=2), whole)


def test_states_of_several_layers_lie_apart() -> None:
    shapes = [ConvolutionShape(0, 37, 4), ConvolutionShape(1, 37, 4)]
    models = [convolution(shape) for shape in shapes]

    def both(ops: Any) -> Any:
        return ops.add(*(model(ops) for model in models), 1.0)

    ids = tokens(9)
    native = Native(both, states=shapes)
    assert error(native.run([ids[:4], ids[4:]]), reference(both, [ids])) < 1e-5


@pytest.mark.parametrize("activation", [Activation.SIGMOID, Activation.IDENTITY, Activation.SILU])
def test_gates_and_cuts_match_the_reference(activation: Activation) -> None:
    def model(ops: Any) -> Any:
        gate, _, x = ops.split(ops.embed(TABLE, 3.0), [10, 4, 10], groups=4)
        return ops.select_outputs(ops.gated(gate, x, activation))

    assert error(Native(model).run([tokens(9)]), reference(model, [tokens(9)])) < 1e-6


def test_a_convolution_without_bias_and_activation() -> None:
    shape = ConvolutionShape(0, 48, 3)
    model = convolution(shape, silu=False, has_bias=False)
    ids = tokens(12)
    assert error(Native(model, states=[shape]).run([ids]), reference(model, [ids])) < 1e-5
