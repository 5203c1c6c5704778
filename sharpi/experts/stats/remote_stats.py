"""RemoteStats: counts of the questions by which other machines computed a run's experts."""

from msgspec import Struct


class RemoteStats(Struct, frozen=True):
    """Counts of questions to other machines; LayerStats counts the experts in them."""

    questions: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    stall_seconds: float = 0.0  # seconds that steps waited for answers
    round_trip_seconds: float = 0.0  # seconds of all questions, until their answers arrived
