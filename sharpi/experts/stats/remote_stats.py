"""RemoteStats: counts of the requests by which other machines computed a run's experts."""

from msgspec import Struct


class RemoteStats(Struct, frozen=True):
    """The counts of requests to other machines; LayerStats counts the experts in them."""

    questions: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    stall_seconds: float = 0.0  # seconds that steps waited for replies
    round_trip_seconds: float = 0.0  # seconds of all requests, until their replies arrived
