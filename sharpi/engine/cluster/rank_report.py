"""RankReport: the counts that a rank publishes about its work at the end of a run."""

from msgspec import Struct

from sharpi.cluster.channel import LinkStats
from sharpi.experts.stats.stats import ExpertStats


class RankReport(Struct, frozen=True):
    """The work of one rank: steps, seconds spent computing, and messages."""

    link: LinkStats
    num_steps: int = 0
    busy_seconds: float = 0.0
    experts: ExpertStats | None = None  # of the rank's own layers, if the first rank asked for them
