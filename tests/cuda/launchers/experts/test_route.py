import numpy as np
import pytest
from device_arrays import empty, read, upload
from msgspec.structs import replace
from reference_ops import choose_experts

from sharpi.device.device import Device
from sharpi.ops.cuda.launchers.experts.route import route
from sharpi.ops.interface import Router, Scoring


def _choose(device: Device, logits: np.ndarray, router: Router) -> tuple[np.ndarray, np.ndarray]:
    shape = (len(logits), router.num_used)
    ids, weights = (empty(device, shape[0] * shape[1] * 4) for _ in range(2))
    bias = None if router.bias is None else upload(device, router.bias)
    spans = upload(device, logits), bias, ids, weights
    device.launch(route(*spans, router, tokens=len(logits)))
    return read(device, ids, np.int32, shape), read(device, weights, np.float32, shape)


def _check(device: Device, logits: np.ndarray, router: Router) -> None:
    ids, weights = _choose(device, logits, router)
    want_ids, want_weights = choose_experts(logits, router)
    np.testing.assert_array_equal(ids, want_ids)
    np.testing.assert_allclose(weights, want_weights, rtol=2e-6, atol=1e-9)


def _logits(tokens: int, experts: int) -> np.ndarray:
    return np.random.default_rng(experts).normal(0, 2, (tokens, experts)).astype(np.float32)


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("scoring", list(Scoring))
@pytest.mark.parametrize(
    ("tokens", "experts", "used"), [(1, 128, 8), (3, 8, 2), (8, 60, 4), (2, 512, 32), (1, 1, 1)]
)
def test_scorings(
    device: Device, tokens: int, experts: int, used: int, scoring: Scoring, normalise: bool
) -> None:
    router = Router(experts, used, scoring, normalise, scale=2.5)
    _check(device, _logits(tokens, experts), router)


@pytest.mark.parametrize("scoring", [Scoring.SIGMOID, Scoring.SOFTMAX])
@pytest.mark.parametrize(("experts", "groups_used"), [(256, 3), (64, 1), (64, 8), (8, 3)])
def test_groups_and_bias(device: Device, experts: int, groups_used: int, scoring: Scoring) -> None:
    bias = np.random.default_rng(1).normal(0, 0.3, experts).astype(np.float32)
    used = min(8, experts // 8 * groups_used)
    router = Router(experts, used, scoring, True, 2.5, bias, 8, groups_used)
    _check(device, _logits(3, experts), router)
    _check(device, _logits(3, experts), replace(router, bias=None))


def test_ties_go_to_the_lower_id(device: Device) -> None:
    router = Router(96, 6, Scoring.SOFTMAX_OF_CHOSEN)
    logits = np.zeros((2, 96), np.float32)
    logits[0, ::2] = -0.0
    logits[1, 40:] = 1
    _check(device, logits, router)
    bias = np.zeros(96, np.float32)
    _check(device, logits, Router(96, 6, Scoring.SIGMOID, True, 1.0, bias, 4, 2))


def test_small_sums_are_not_blown_up(device: Device) -> None:
    _check(device, np.full((1, 16), -30, np.float32), Router(16, 2, Scoring.SIGMOID))


def test_sparse_mixer_weighs_against_near_logits(device: Device) -> None:
    logits = np.repeat(np.array([[4, 3.99, 3.95, 3.9, 1, 0.99, -2, 0.5]], np.float32), 4, axis=0)
    logits[1] = -logits[1]
    logits[2, 1:] = logits[2, 0]
    logits[3] = 0.001
    _check(device, logits, Router(8, 6, Scoring.SPARSE_MIXER, scale=1.5))


@pytest.mark.parametrize("num_groups", [0, 4])
@pytest.mark.parametrize("scoring", list(Scoring))
def test_ids_stay_distinct(device: Device, scoring: Scoring, num_groups: int) -> None:
    """For all logits of a broken model, chosen experts exist and are distinct."""
    logits = _logits(4, 40)
    logits[0] = np.nan
    logits[1, 3:] = np.nan
    logits[2] = -np.inf
    logits[3, ::3] = np.inf
    ids, _ = _choose(device, logits, Router(40, 20, scoring, True, 1.0, None, num_groups, 1))
    assert ((ids >= 0) & (ids < 40)).all()
    assert all(len(set(row)) == 20 for row in ids.tolist())
