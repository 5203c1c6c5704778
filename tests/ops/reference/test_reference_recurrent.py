"""The recurrent references against other formulations of the same arithmetic."""

import numpy as np
import pytest
from reference_ops import ReferenceOps
from reference_recurrent import convolve, softplus

from sharpi.ops.interface import Activation
from sharpi.ops.recurrent import ConvolutionShape, DecayRates, DeltaNetShape, Mamba2Shape

RNG = np.random.default_rng(3)
TOKENS = 11


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def rates(heads: int) -> DecayRates:
    return DecayRates(-np.exp(normal(heads)), normal(heads))


def started(position: int = 0, tokens: int = TOKENS) -> ReferenceOps:
    ops = ReferenceOps()
    ops.begin([0] * tokens, position, range(tokens))
    return ops


def test_a_convolution_is_that_of_numpy_channel_by_channel() -> None:
    x, weight, bias = normal(TOKENS, 5), normal(4, 5), normal(5)
    out, state = convolve(x, weight, bias, np.zeros((3, 5), np.float32))
    for channel in range(5):
        whole = np.convolve(x[:, channel], weight[::-1, channel])[:TOKENS]
        assert np.allclose(out[:, channel], whole + bias[channel], atol=1e-6)
    assert np.array_equal(state, x[-3:])


def test_softplus_neither_overflows_nor_vanishes() -> None:
    x = np.array([-30, 0, 30, 300], np.float32)
    assert np.allclose(softplus(x), [np.exp(-30), np.log(2), 30, 300], rtol=1e-6)


@pytest.mark.parametrize("order", ["grouped", "tiled"])
def test_the_delta_rule_solves_for_all_tokens_at_once(order: str) -> None:
    """A token's correction depends linearly on the corrections before it (arXiv 2412.06464)."""
    shape = DeltaNetShape(0, 2, 4, 6, 5, order)  # type: ignore[arg-type]
    qkv, beta, alpha, decays = (
        normal(TOKENS, shape.width),
        normal(TOKENS, 4),
        normal(TOKENS, 4),
        rates(4),
    )
    out = started().delta_net(qkv, beta, alpha, decays, shape).reshape(TOKENS, 4, 5)
    b = 1 / (1 + np.exp(-beta.astype(np.float64)))
    g = np.cumsum(decays.a * np.log1p(np.exp(alpha.astype(np.float64) + decays.dt_bias)), axis=0)
    for head in range(4):
        of_key = head % 2 if order == "tiled" else head // 2
        q, k = (qkv[:, start + 6 * of_key :][:, :6].astype(np.float64) for start in (0, 12))
        q, k = (x / np.sqrt((x**2).sum(1, keepdims=True) + 1e-6) for x in (q, k))
        v = qkv[:, 24 + 5 * head :][:, :5]
        between = np.exp(np.tril(g[:, None, head] - g[None, :, head]))
        earlier = np.tril(k @ k.T * between, -1) * b[:, head : head + 1]
        corrections = np.linalg.solve(np.eye(TOKENS) + earlier, b[:, head : head + 1] * v)
        whole = np.tril(q @ k.T * between) @ corrections / np.sqrt(6)
        assert np.allclose(out[:, head], whole, atol=1e-5)


def test_mamba2_is_masked_attention_without_softmax() -> None:
    """Compares Mamba-2 with its dual form (arXiv 2405.21060, section 3)."""
    shape = Mamba2Shape(0, 4, 2, 5, 6)
    xbc, dt, decays, skip = normal(TOKENS, shape.width), normal(TOKENS, 4), rates(4), normal(4)
    out = started().mamba2(xbc, dt, decays, skip, shape).reshape(TOKENS, 4, 5)
    steps = np.log1p(np.exp(dt.astype(np.float64) + decays.dt_bias))
    g = np.cumsum(decays.a * steps, axis=0)
    for head in range(4):
        x = xbc[:, 5 * head :][:, :5]
        b, c = (xbc[:, start + 6 * (head // 2) :][:, :6] for start in (20, 32))
        mask = np.tril(np.exp(np.tril(g[:, None, head] - g[None, :, head])))
        whole = (c @ b.T * mask) @ (steps[:, head : head + 1] * x) + skip[head] * x
        assert np.allclose(out[:, head], whole, atol=1e-4)


def test_a_state_is_carried_from_step_to_step_and_dropped_at_position_0() -> None:
    shape, weight, x = ConvolutionShape(0, 5, 3), normal(3, 5), normal(TOKENS, 5)
    whole = started().convolve(x, weight, None, shape, silu=True)
    ops = started(tokens=4)
    ops.convolve(normal(4, 5), weight, None, shape, silu=True)
    first = ops.convolve(x[:4], weight, None, shape, silu=True)
    ops.begin([0] * (TOKENS - 4), 4, ())
    rest = ops.convolve(x[4:], weight, None, shape, silu=True)
    assert np.array_equal(np.concatenate([first, rest]), whole)


def test_split_cuts_every_group() -> None:
    first, second = started(tokens=1).split(np.arange(10)[None], [2, 3], groups=2)
    assert first.tolist() == [[0, 1, 5, 6]]
    assert second.tolist() == [[2, 3, 4, 7, 8, 9]]


def test_a_gate_is_activated_and_multiplied() -> None:
    gate, x = normal(2, 6), normal(2, 6)
    ops = started(tokens=2)
    assert np.allclose(ops.gated(gate, x, Activation.SIGMOID), x / (1 + np.exp(-gate)), atol=1e-6)
    assert np.array_equal(ops.gated(gate, x, Activation.IDENTITY), gate * x)
