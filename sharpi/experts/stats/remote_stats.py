"""RemoteStats: what other machines computed of a run's experts, and what that cost."""

from msgspec import Struct


class RemoteStats(Struct, frozen=True):
    """Questions to other machines; a layer's counts say how many experts they were about."""

    questions: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    stall_seconds: float = 0.0  # in which steps waited for answers
    round_trip_seconds: float = 0.0  # of all questions, until their answers were there
