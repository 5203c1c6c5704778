"""The recurrent kernels against the NumPy reference, in all batches, among other states."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from device_arrays import empty, read, upload
from reference_ops import ReferenceOps

from sharpi.device.device import Device
from sharpi.device.launch import Launch, Span
from sharpi.ops.cuda.launchers import recurrent
from sharpi.ops.cuda.launchers.recurrent import StateSlice
from sharpi.ops.recurrent import (
    ConvolutionShape,
    DecayRates,
    DeltaNetShape,
    Mamba2Shape,
    RecurrentShape,
)

TOKENS, STATES, OFFSET = 21, 3, 5
Floats = np.ndarray
Start = Callable[[list[Span], Span, StateSlice, int], Launch]

SHAPES: dict[str, RecurrentShape] = {
    "convolution": ConvolutionShape(0, 300, 4),
    "convolution, long": ConvolutionShape(0, 7, 16),
    "convolution, of single tokens": ConvolutionShape(0, 33, 1),
    "delta net": DeltaNetShape(0, 2, 4, 32, 32),
    "delta net, tiled": DeltaNetShape(0, 2, 6, 16, 40, "tiled"),
    "delta net, real head": DeltaNetShape(0, 1, 1, 128, 128),
    "delta net, odd heads": DeltaNetShape(0, 3, 3, 10, 21),
    "delta net, long keys": DeltaNetShape(0, 1, 1, 200, 8),
    "delta net, longest keys": DeltaNetShape(0, 1, 1, 1000, 8),
    "delta net, decays of keys": DeltaNetShape(0, 2, 2, 40, 24, decays_by_key=True),
    "delta net, decays with a floor": DeltaNetShape(0, 2, 2, 16, 16, decays_by_key=True),
    "mamba2": Mamba2Shape(0, 4, 2, 32, 16),
    "mamba2, real head": Mamba2Shape(0, 2, 1, 64, 128),
    "mamba2, odd heads": Mamba2Shape(0, 6, 3, 7, 10),
    "mamba2, large state": Mamba2Shape(0, 1, 1, 8, 256),
}


KINDS = ["convolution", "delta net, odd heads", "mamba2, odd heads"]


@dataclass(frozen=True)
class Case:
    """`inputs` (T, ...) each; `start` makes the launch; `want` (T, width)."""

    shape: RecurrentShape
    inputs: list[Floats]
    weights: list[Floats]
    start: Start = field(repr=False)
    want: Floats = field(repr=False)


def _rates(rng: np.random.Generator, heads: int, keys: int = 1, floor: float = 0.0) -> DecayRates:
    a, dt_bias = -np.exp(rng.standard_normal(heads)), rng.standard_normal(heads * keys)
    return DecayRates(a.astype(np.float32), dt_bias.astype(np.float32), floor)


def _convolution(shape: ConvolutionShape, ops: ReferenceOps, rng: np.random.Generator) -> Case:
    x = rng.standard_normal((TOKENS, shape.channels), np.float32)
    weight = rng.standard_normal((shape.kernel, shape.channels), np.float32)
    bias = rng.standard_normal(shape.channels, np.float32)

    def start(spans: list[Span], out: Span, state_slice: StateSlice, tokens: int) -> Launch:
        sizes = {"shape": shape, "tokens": tokens, "silu": True}
        return recurrent.convolve(*spans, out, state_slice, **sizes)

    want = ops.convolve(x, weight, bias, shape, silu=True)
    return Case(shape, [x], [weight, bias], start, want)


def _delta_net(shape: DeltaNetShape, ops: ReferenceOps, rng: np.random.Generator) -> Case:
    heads, keys = shape.num_value_heads, shape.key_dim if shape.decays_by_key else 1
    widths = (shape.width, heads, heads * keys)
    inputs = [rng.standard_normal((TOKENS, n), np.float32) for n in widths]
    rates = _rates(rng, heads, keys, -5.0 if keys == 16 else 0.0)

    def start(spans: list[Span], out: Span, state_slice: StateSlice, tokens: int) -> Launch:
        sizes = {"shape": shape, "tokens": tokens, "floor": rates.floor}
        return recurrent.delta_net(*spans, out, state_slice, **sizes)

    qkv, beta, alpha = inputs
    want = ops.delta_net(qkv, beta, alpha, rates, shape)
    return Case(shape, inputs, [rates.a, rates.dt_bias], start, want)


def _mamba2(shape: Mamba2Shape, ops: ReferenceOps, rng: np.random.Generator) -> Case:
    inputs = [rng.standard_normal((TOKENS, n), np.float32) for n in (shape.width, shape.num_heads)]
    rates, skip = _rates(rng, shape.num_heads), rng.standard_normal(shape.num_heads, np.float32)

    def start(spans: list[Span], out: Span, state_slice: StateSlice, tokens: int) -> Launch:
        return recurrent.mamba2(*spans, out, state_slice, shape=shape, tokens=tokens)

    want = ops.mamba2(*inputs, rates, skip, shape)
    return Case(shape, inputs, [rates.a, skip, rates.dt_bias], start, want)


@cache
def _case(name: str) -> Case:
    shape, ops, rng = SHAPES[name], ReferenceOps(), np.random.default_rng(7)
    ops.begin([0] * TOKENS, 0, [])
    if isinstance(shape, ConvolutionShape):
        return _convolution(shape, ops, rng)
    make = _delta_net if isinstance(shape, DeltaNetShape) else _mamba2
    return make(shape, ops, rng)  # type: ignore[arg-type, operator]


def _run(device: Device, case: Case, batches: list[int]) -> tuple[Floats, Floats]:
    """Returns the results of all tokens, and the memory of the states afterwards."""
    stride = OFFSET + case.shape.state_floats + 3
    states = upload(device, np.full((STATES, stride), 7, np.float32))  # left by another sequence
    index, weights = (
        upload(device, np.array([1], np.int32)),
        [upload(device, w) for w in case.weights],
    )
    outs, begin = [], 0
    for count in batches:
        positions = upload(device, np.arange(begin, begin + count, dtype=np.int32))
        state_slice = StateSlice(states, index, positions, stride, OFFSET)
        inputs = [upload(device, x[begin : begin + count]) for x in case.inputs]
        shape = (count, case.want.shape[1])
        out = empty(device, 4 * shape[0] * shape[1])
        device.launch(case.start([*inputs, *weights], out, state_slice, count))
        outs.append(read(device, out, np.float32, shape))
        begin += count
    return np.concatenate(outs), read(device, states, np.float32, (STATES, stride))


@cache
def _whole(device: Device, name: str) -> tuple[Floats, Floats]:
    """Returns what `_run` does for all tokens in one batch."""
    return _run(device, _case(name), [TOKENS])


@pytest.mark.parametrize("name", SHAPES)
def test_against_the_reference(device: Device, name: str) -> None:
    case = _case(name)
    out, states = _whole(device, name)
    assert np.linalg.norm(out - case.want) / np.linalg.norm(case.want) < 2e-6
    end = OFFSET + case.shape.state_floats
    untouched = np.concatenate([states[[0, 2]].ravel(), states[1, :OFFSET], states[1, end:]])
    assert (untouched == 7).all()


@pytest.mark.parametrize("name", KINDS)
def test_any_batches_give_the_same_bits(device: Device, name: str) -> None:
    case = _case(name)
    whole, state = _whole(device, name)
    for batches in ([1] * TOKENS, [1, 2, 16, 2], [17, 4]):
        out, after = _run(device, case, batches)
        np.testing.assert_array_equal(out, whole)
        np.testing.assert_array_equal(after, state)


@pytest.mark.parametrize("name", KINDS)
def test_sequences_have_states_of_their_own(device: Device, name: str) -> None:
    """Sequences of uneven lengths, one of them begun before, with tokens one after the other."""
    case, counts = _case(name), (1, 18, 2)
    stride = OFFSET + case.shape.state_floats
    ends = np.cumsum([0, *counts]).astype(np.int32)
    before = np.random.default_rng(3).standard_normal((STATES, stride), np.float32)
    names = np.array([2, 0, 1], np.int32)
    positions = np.concatenate([[9], np.arange(18), [4, 5]]).astype(np.int32)
    weights = [upload(device, w) for w in case.weights]
    width = case.want.shape[1]

    def run(rows: slice, states: Span, **whose: Any) -> Floats:
        inputs = [upload(device, x[rows]) for x in case.inputs]
        count = rows.stop - rows.start
        state_slice = StateSlice(states, positions=upload(device, positions[rows]), **whose)
        out = empty(device, 4 * count * width)
        device.launch(case.start([*inputs, *weights], out, state_slice, count))
        return read(device, out, np.float32, (count, width))

    together, apart = upload(device, before), upload(device, before)
    sizes = {"stride": stride, "offset": OFFSET}
    whose = {"state": upload(device, names), "starts": upload(device, ends), "num_sequences": 3}
    out = run(slice(0, TOKENS), together, **whose, **sizes)
    for number, (first, end) in enumerate(pairwise(ends.tolist())):
        own = upload(device, names[number : number + 1])
        alone = run(slice(first, end), apart, state=own, **sizes)
        np.testing.assert_array_equal(out[first:end], alone)
    after = [read(device, each, np.float32, before.shape) for each in (together, apart)]
    np.testing.assert_array_equal(*after)


@pytest.mark.parametrize("name", KINDS)
def test_each_token_of_a_check_leaves_a_state(device: Device, name: str) -> None:
    """The second of two sequences has drafts; its own state stays, the first one's goes on."""
    case, counts = _case(name), (1, TOKENS - 1)
    stride, many = OFFSET + case.shape.state_floats, TOKENS + 3
    before = np.tile(np.random.default_rng(3).standard_normal(stride, np.float32), (many, 1))
    positions = np.concatenate([[9], np.arange(4, 4 + counts[1])]).astype(np.int32)
    weights = [upload(device, w) for w in case.weights]
    width, leaves = case.want.shape[1], np.array([-1, *range(3, 3 + counts[1])], np.int32)

    def run(rows: slice, states: Span, **whose: Any) -> Floats:
        inputs = [upload(device, x[rows]) for x in case.inputs]
        own, count = upload(device, positions[rows]), rows.stop - rows.start
        state_slice = StateSlice(states, positions=own, stride=stride, offset=OFFSET, **whose)
        out = empty(device, 4 * count * width)
        device.launch(case.start([*inputs, *weights], out, state_slice, count))
        return read(device, out, np.float32, (count, width))

    checked, single = upload(device, before), upload(device, before)
    starts = upload(device, np.array([0, 1, TOKENS], np.int32))
    names, after = upload(device, np.array([1, 2], np.int32)), upload(device, leaves)
    out = run(
        slice(0, TOKENS), checked, state=names, starts=starts, num_sequences=2, after=after
    )  # fmt: skip
    found = read(device, checked, np.float32, before.shape)
    for token in range(TOKENS):
        own = upload(device, np.array([min(1 + token, 2)], np.int32))
        alone = run(slice(token, token + 1), single, state=own)
        np.testing.assert_array_equal(out[token : token + 1], alone)
        state = read(device, single, np.float32, before.shape)[min(1 + token, 2)]
        np.testing.assert_array_equal(found[1 if token == 0 else 2 + token], state)
    np.testing.assert_array_equal(found[2], before[2])
