"""RankReport: the counts that a rank publishes about its work when a run ends."""

from msgspec import Struct

from sharpi.cluster.wire_count import WireCount
from sharpi.experts.stats.stats import ExpertStats


class RankReport(Struct, frozen=True):
    """The work of one rank: its steps, the seconds that it computed in, and its messages."""

    wire: WireCount
    num_steps: int = 0
    busy_seconds: float = 0.0
    experts: ExpertStats | None = None  # of its own layers, where the first rank asked for them
