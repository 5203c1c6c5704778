"""Real routes: native and reference agree on them, and hit rates are as expected."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from sharpi.experts.native.native_policy import NativePolicy
from sharpi.experts.policy_settings import PolicyKind, PolicySettings
from sharpi.experts.reference.policy_make import make_policy
from sharpi.experts.simulation.predictor_replay import measure
from sharpi.experts.simulation.simulate import Simulation, SimulationRow, simulate
from sharpi.experts.trace.trace import Trace, read_trace

pytestmark = [pytest.mark.native, pytest.mark.shared, pytest.mark.slow]
Row = Callable[..., SimulationRow]
_BESIDE = Path(__file__).parents[4] / "shared"


@pytest.fixture(scope="module")
def trace() -> Trace:
    path = Path(os.environ.get("TESTS_SHARED", _BESIDE)) / "traces" / "gpt-oss-20b.npz"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return read_trace(path)


@pytest.mark.parametrize("kind", PolicyKind)
def test_native_decides_as_the_reference(trace: Trace, kind: PolicyKind) -> None:
    routes = np.ascontiguousarray(trace.routes[:1000, :3])
    pinned = ((3, 1, 4, 15),) * 3
    chosen = PolicySettings(kind, 32, 4, (8,) * 3, pinned=pinned, load_budget=1.2)
    native, reference = NativePolicy(chosen), make_policy(chosen)
    assert native.start() == reference.start()
    for token in routes:
        for layer, route in enumerate(token.tolist()):
            assert native.use(layer, route) == reference.use(layer, route)
        assert native.end_token() == reference.end_token()


@pytest.fixture(scope="module")
def start(trace: Trace) -> Trace:
    return trace.first(20_000)


@pytest.fixture(scope="module")
def row(start: Trace) -> Row:
    """Returns a function that replays the start with a policy, once for all tests."""

    @cache
    def replay(policy: str, slots: int, admission: bool = False) -> SimulationRow:
        return simulate(start, policy, slots, Simulation(admission=admission, load_budget=10))

    return replay


# Hit rates in percent at 8 and 16 slots over the first 20,000 tokens.
@pytest.mark.parametrize(
    ("policy", "admission", "least", "most_loads"),
    [
        ("slru", False, (69.75, 91.05), (29.1, 8.6)),
        ("slru", True, (68.6, 90.8), (7.1, 5.4)),
        ("learned-retain", False, (73.6, 91.9), (10.1, 10.1)),
        ("learned-keep", False, (73.4, 91.8), (15.6, 6.7)),
        ("learned-token-end", False, (76.4, 94.0), (10.1, 10.1)),
        ("learned", False, (80.2, 95.7), (10.1, 10.1)),
        ("learned-prefetch", False, (82.8, 96.1), (17.4, 13.2)),
    ],
)
def test_hit_rates(
    row: Row,
    policy: str,
    admission: bool,
    least: tuple[float, float],
    most_loads: tuple[float, float],
) -> None:
    for slots, hits, loads in zip((8, 16), least, most_loads, strict=True):
        found = row(policy, slots, admission)
        assert 100 * found.hit_rate >= hits
        assert found.loads_per_token <= loads


def test_the_optimum_is_above_every_policy_without_prefetch(row: Row) -> None:
    best = row("optimum", 8).hit_rate
    assert best > 0.8
    assert all(row(name, 8).hit_rate < best for name in ("slru", "lru", "learned-retain"))


def test_predictors_find_about_half(trace: Trace) -> None:
    recalls = {
        name: measure(trace, name, 4).recall for name in ("last-token", "last-layer", "both")
    }
    assert recalls["both"] > recalls["last-layer"] > recalls["last-token"] > 0.4
