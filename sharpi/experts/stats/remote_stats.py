"""RemoteStats: counts of the questions by which other machines computed a run's experts."""

from msgspec import Struct


class RemoteStats(Struct, frozen=True):
    """Questions to other machines; LayerStats count the experts that they were about."""

    questions: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    stall_seconds: float = 0.0  # in which steps waited for answers
    round_trip_seconds: float = 0.0  # of all questions, until their answers were there
