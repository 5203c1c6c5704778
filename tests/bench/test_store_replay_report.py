"""Replays through the store: late experts are misses, and the content of a file of experts."""

from pathlib import Path

import numpy as np
import pytest
from experts.random_experts import LEAST_EXPERT_BYTES, round_expert_bytes, write_experts
from experts.store_replay import Pace, Replayed, replay
from experts.store_replay_report import HEADING, replay_line, replay_record, replay_row
from numpy.typing import NDArray

from sharpi.experts.native.store_counts import StoreCounts
from sharpi.experts.policy_settings import Counts
from sharpi.experts.simulation.simulate import Simulation, SimulationRow, policy_settings, simulate
from sharpi.experts.trace.trace import Trace

SIMULATED = SimulationRow(
    policy="learned",
    slots=8,
    admission=False,
    hit_rate=0.6,
    loads_per_token=2,
    early_loads_per_token=1,
    early_hits_per_token=1,
    reads_per_token=3,
    bytes_per_token=None,
    microseconds_per_token=1,
)


def store_counts(hits: int, late: int) -> StoreCounts:
    return StoreCounts(
        accesses=40,
        hits=hits,
        late=late,
        loads=40 - hits - late,
        loaded_bytes=1000 * (40 - hits - late),
        fills=0,
        bytes_read=100 * 1000,
        stall_ns=5_000_000,
        prefetched=late,
        prefetch_used=late,
        wasted_bytes=0,
    )


def test_late_is_missed() -> None:
    """The policy counts 72 of 120 lookups as hits, but only 66 were there and 4 in flight."""
    store = (store_counts(20, 1), store_counts(26, 2), store_counts(20, 1))
    policy = tuple(Counts(accesses=40, hits=24, loads=5) for _ in store)
    row = replay_row("learned", SIMULATED, Replayed(store, policy, 10, 0.2), 1000)
    assert (row.hit_rate, row.late_rate) == (66 / 120, 4 / 120)
    assert row.unread_rate == 2 / 120
    assert row.points == pytest.approx(-5)
    assert row.first_layers_late == 3 / 4
    assert (row.loads_per_token, row.reads_per_token) == (1.5, 30)
    assert (row.stall_ms_per_token, row.ms_per_token) == (1.5, 20)
    assert replay_record(row)["points"] == row.points
    line = replay_line(row)
    assert len(line) == len(HEADING)
    assert " 60.00   55.00   -5.00   3.33    1.67 " in line


def test_a_token_lasts_as_long_as_its_pauses() -> None:
    assert Pace(layer=0.5, output=2).token_seconds(4) == 4


def test_experts_are_whole_blocks(tmp_path: Path) -> None:
    assert round_expert_bytes(1) == LEAST_EXPERT_BYTES
    assert round_expert_bytes(3.5 * LEAST_EXPERT_BYTES) == 3 * LEAST_EXPERT_BYTES
    layout = write_experts(tmp_path / "experts", 2, 5, 2 * LEAST_EXPERT_BYTES)
    assert [layer.expert_bytes for layer in layout.layers] == [2 * LEAST_EXPERT_BYTES] * 2
    assert layout.largest_slot == 2 * LEAST_EXPERT_BYTES
    pieces = [piece for layer in layout.layers for piece in layer.pieces]
    ends = [piece.offset + 5 * piece.num_bytes for piece in pieces]
    assert [piece.offset for piece in pieces] == [0, *ends[:-1]]
    assert (tmp_path / "experts").stat().st_size == ends[-1]


@pytest.mark.native
@pytest.mark.parametrize("policy", ["slru", "learned-keep", "learned"])
def test_the_store_keeps_what_the_simulator_does(tmp_path: Path, policy: str) -> None:
    routes = skewed_routes(60, 5, 8, 2)
    trace = Trace(routes, np.array([20, 40]), 8)
    settings = Simulation(load_budget=2)
    layout = write_experts(tmp_path / "experts", 5, 8, LEAST_EXPERT_BYTES)
    replayed = replay(trace, policy_settings(trace, policy, 3, settings), layout, Pace(0, 0))
    row = replay_row(policy, simulate(trace, policy, 3, settings), replayed, LEAST_EXPERT_BYTES)
    assert row.unread_rate == 0
    assert row.hit_rate + row.late_rate == pytest.approx(row.simulated_hit_rate)
    assert row.loads_per_token == row.simulated_loads_per_token
    assert policy == "learned" or row.late_rate == 0


def skewed_routes(tokens: int, layers: int, experts: int, k: int) -> NDArray[np.int32]:
    """Returns (tokens, layers, k), distinct within a row."""
    random = np.random.default_rng(0)
    scores = random.normal(0, 1.5, (layers, experts)) + random.gumbel(
        size=(tokens, layers, experts)
    )
    return np.ascontiguousarray(np.argsort(-scores, axis=2)[:, :, :k], np.int32)
