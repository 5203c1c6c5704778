"""Recurrent layers in chunks: their algebra in NumPy, and the kernels against single steps."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from device_arrays import empty, read, upload
from reference_ops import ReferenceOps

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.cuda.launchers import recurrent, recurrent_chunks
from sharpi.ops.cuda.launchers.recurrent import StateSlice
from sharpi.ops.cuda.launchers.recurrent_chunks import prepared_bytes, supports_chunks
from sharpi.ops.recurrent import DecayRates, DeltaNetShape, Mamba2Shape

TOKENS, STATES, OFFSET = 71, 3, 8
Floats = npt.NDArray[Any]
Shape = DeltaNetShape | Mamba2Shape

SHAPES: dict[str, Shape] = {
    "delta net": DeltaNetShape(0, 2, 4, 32, 32),
    "delta net, tiled": DeltaNetShape(0, 2, 6, 16, 40, "tiled"),
    "delta net, real head": DeltaNetShape(0, 1, 1, 128, 128),
    "delta net, odd heads": DeltaNetShape(0, 3, 3, 10, 21),
    "mamba2": Mamba2Shape(0, 4, 2, 32, 16),
    "mamba2, real head": Mamba2Shape(0, 2, 1, 64, 128),
    "mamba2, odd heads": Mamba2Shape(0, 6, 3, 7, 10),
}
TWO_HEADS: dict[str, Shape] = {
    "delta net": DeltaNetShape(0, 1, 2, 32, 32),
    "mamba2": Mamba2Shape(0, 2, 1, 32, 16),
}


def chunk(
    state: Floats, q: Floats, k: Floats, v: Floats, log_decay: Floats, beta: Floats | None
) -> tuple[Floats, Floats]:
    """Computes a chunk of one head as chunks.cuh explains; without `beta`, v is u.

    state (keys, values), q and k (T, keys), v (T, values), log_decay and beta (T,).
    """
    sums = np.cumsum(log_decay)
    decays, since = np.exp(sums)[:, None], np.tril(np.exp(sums[:, None] - sums[None]))
    u = v
    if beta is not None:
        weights = np.tril(beta[:, None] * since * (k @ k.T), -1)
        wrong = beta[:, None] * (v - decays * (k @ state))
        u = np.linalg.solve(np.eye(len(k)) + weights, wrong)
    out = decays * (q @ state) + (since * (q @ k.T)) @ u
    return out, decays[-1] * state + (k * since[-1][:, None]).T @ u


def single_steps(
    state: Floats, q: Floats, k: Floats, v: Floats, log_decay: Floats, beta: Floats | None
) -> tuple[Floats, Floats]:
    out = np.empty_like(v)
    for t in range(len(q)):
        state = np.exp(log_decay[t]) * state
        u = v[t] if beta is None else beta[t] * (v[t] - k[t] @ state)
        state = state + np.outer(k[t], u)
        out[t] = q[t] @ state
    return out, state


@pytest.mark.parametrize("is_delta_net", [True, False])
def test_a_chunk_is_its_single_steps(is_delta_net: bool) -> None:
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((32, width)) for width in (24, 24, 10))
    k /= np.linalg.norm(k, axis=1, keepdims=True)
    beta = rng.random(32) if is_delta_net else None
    given = rng.standard_normal((24, 10)), q, k, v, -rng.exponential(1, 32), beta
    for found, wanted in zip(chunk(*given), single_steps(*given), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)


class Layer:
    """A layer's inputs and weights, and the launchers of its kernels."""

    def __init__(self, shape: Shape, decay: float = 1.0, tokens: int = TOKENS) -> None:
        rng = np.random.default_rng(7)
        self.shape = shape
        heads = self.heads
        sizes = [shape.width, heads, heads] if self.is_delta_net else [shape.width, heads]
        self.inputs = [rng.standard_normal((tokens, n), np.float32) for n in sizes]
        a = (-decay * np.exp(rng.standard_normal(heads))).astype(np.float32)
        rates = DecayRates(a, rng.standard_normal(heads, np.float32))
        ops: Any = ReferenceOps()
        ops.begin([0] * tokens, 0, [])
        if self.is_delta_net:
            self.weights, others = [rates.a, rates.dt_bias], ()
        else:
            others = (rng.standard_normal(heads, np.float32),)
            self.weights = [rates.a, *others, rates.dt_bias]
        name = "delta_net" if self.is_delta_net else "mamba2"
        self.in_chunks: Callable[..., Any] = getattr(recurrent_chunks, name)
        self.in_steps: Callable[..., Any] = getattr(recurrent, name)
        self.want: Floats = getattr(ops, name)(*self.inputs, rates, *others, shape)

    @property
    def is_delta_net(self) -> bool:
        return isinstance(self.shape, DeltaNetShape)

    @property
    def heads(self) -> int:
        shape: Any = self.shape
        return int(shape.num_value_heads if self.is_delta_net else shape.num_heads)

    def run(self, device: Device, chunked: list[bool], counts: list[int]) -> tuple[Floats, Floats]:
        """Computes the tokens in turns, in chunks or by steps; returns results and all states."""
        stride = OFFSET + self.shape.state_floats + 4
        states = upload(device, np.full((STATES, stride), 7, np.float32))
        index = upload(device, np.array([1], np.int32))
        weights = [upload(device, each) for each in self.weights]
        outs, begin = [], 0
        for in_chunks, count in zip(chunked, counts, strict=True):
            positions = upload(device, np.arange(begin, begin + count, dtype=np.int32))
            state_slice = StateSlice(states, index, positions, stride, OFFSET)
            inputs = [upload(device, x[begin : begin + count]) for x in self.inputs]
            out = empty(device, 4 * count * self.want.shape[1])
            given: list[Span] = [*inputs, *weights, out]
            sizes = {"shape": self.shape, "tokens": count}
            if in_chunks:
                prepared = empty(device, prepared_bytes(self.shape, count))
                for launch in self.in_chunks(*given, prepared, state_slice, **sizes):
                    device.launch(launch)
            else:
                device.launch(self.in_steps(*given, state_slice, **sizes))
            outs.append(read(device, out, np.float32, (count, self.want.shape[1])))
            begin += count
        return np.concatenate(outs), read(device, states, np.float32, (STATES, stride))


def distance(found: Floats, wanted: Floats) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("name", SHAPES)
def test_chunks_give_what_single_steps_do(device: Device, name: str) -> None:
    """Chunks sum float32 in another order; the memory around the layer's state stays unchanged."""
    layer = Layer(SHAPES[name])
    out, states = layer.run(device, [True], [TOKENS])
    _, wanted = layer.run(device, [False], [TOKENS])
    assert distance(out, layer.want) < 2e-6
    end = OFFSET + layer.shape.state_floats
    state = slice(OFFSET, end)
    assert distance(states[1, state], wanted[1, state]) < 2e-6
    untouched = np.concatenate([states[[0, 2]].ravel(), states[1, :OFFSET], states[1, end:]])
    assert (untouched == 7).all()


@pytest.mark.parametrize("name", ["delta net", "mamba2"])
def test_chunks_follow_each_other_and_single_steps(device: Device, name: str) -> None:
    layer = Layer(SHAPES[name])
    out, _ = layer.run(device, [True, False, True], [33, 5, 33])
    assert distance(out, layer.want) < 2e-6


@pytest.mark.parametrize("decay", [1e-4, 300.0])
@pytest.mark.parametrize("name", TWO_HEADS)
def test_a_state_that_stays_or_is_forgotten_at_once(
    device: Device, name: str, decay: float
) -> None:
    """Decays of a chunk that underflow are zeros, and nothing is divided by them.

    A whole chunk hands its state to one that is not whole.
    """
    layer = Layer(TWO_HEADS[name], decay, tokens=39)
    out, _ = layer.run(device, [True], [39])
    assert distance(out, layer.want) < 2e-6


def test_states_of_many_keys_are_left_to_single_steps() -> None:
    assert supports_chunks(DeltaNetShape(0, 1, 1, 128, 8))
    assert not supports_chunks(DeltaNetShape(0, 1, 1, 200, 8))
    assert not supports_chunks(Mamba2Shape(0, 1, 1, 8, 256))
