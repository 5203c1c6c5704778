"""Reports replays through the expert store: hit rates compared with the simulator, late experts."""

from dataclasses import asdict, dataclass

import numpy as np
from experts.store_replay import Replayed

from sharpi.experts.native.store_counts import StoreCounts
from sharpi.experts.policy_settings import Counts
from sharpi.experts.simulation.simulate import SimulationRow

HEADING = (
    f"{'policy':20}{'slots':>6}{'simulator':>11}{'store':>8}{'points':>8}{'late':>7}{'unread':>8}"
    f"{'loads':>8}{'reads':>8}{'stall ms':>10}{'ms':>8}"
)


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """The figures of one policy with one number of slots per layer; rates are 0 to 1."""

    policy: str
    slots: int
    simulated_hit_rate: float
    hit_rate: float  # resident when needed
    late_rate: float  # in flight when needed
    unread_rate: float  # had a slot, but its read was dropped from the queue of prefetches
    # the share of late experts in the first two layers, decided at the previous token's end
    first_layers_late: float
    simulated_loads_per_token: float
    loads_per_token: float  # as the policy counts them
    reads_per_token: float  # all reads of the disk, in experts
    stall_ms_per_token: float
    ms_per_token: float

    @property
    def points(self) -> float:
        """The hit rate minus the simulated one, in percentage points; late experts are misses."""
        return 100 * (self.hit_rate - self.simulated_hit_rate)


def replay_row(
    name: str, simulated: SimulationRow, replayed: Replayed, expert_bytes: int
) -> ReplayRow:
    """Returns the figures of one replay, with those of a simulation of the same tokens."""
    late = [layer.late for layer in replayed.store]
    store = StoreCounts(*np.array(replayed.store, np.int64).sum(axis=0).tolist())
    policy = Counts(*np.array(replayed.policy, np.int64).sum(axis=0).tolist())
    tokens = replayed.num_tokens
    return ReplayRow(
        policy=name,
        slots=simulated.slots,
        simulated_hit_rate=simulated.hit_rate,
        hit_rate=store.hits / store.accesses,
        late_rate=store.late / store.accesses,
        unread_rate=(policy.hits - store.hits - store.late) / store.accesses,
        first_layers_late=sum(late[:2]) / max(1, store.late),
        simulated_loads_per_token=simulated.loads_per_token,
        loads_per_token=policy.loads / tokens,
        reads_per_token=store.bytes_read / expert_bytes / tokens,
        stall_ms_per_token=store.stall_ns / 1e6 / tokens,
        ms_per_token=1e3 * replayed.seconds / tokens,
    )


def replay_line(row: ReplayRow) -> str:
    """Formats a row under `HEADING`, rates in percent."""
    return (
        f"{row.policy:20}{row.slots:>6}{100 * row.simulated_hit_rate:>11.2f}"
        f"{100 * row.hit_rate:>8.2f}{row.points:>+8.2f}{100 * row.late_rate:>7.2f}"
        f"{100 * row.unread_rate:>8.2f}{row.loads_per_token:>8.1f}{row.reads_per_token:>8.1f}"
        f"{row.stall_ms_per_token:>10.2f}{row.ms_per_token:>8.1f}"
    )


def replay_record(row: ReplayRow) -> dict[str, float | int | str]:
    """Returns a row as a dictionary for a JSON file."""
    return asdict(row) | {"points": row.points}
