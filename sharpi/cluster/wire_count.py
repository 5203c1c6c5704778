"""WireCount: messages, bytes and seconds on the wire of one rank, each way."""

from msgspec import Struct


class WireCount(Struct):
    """The counts of one rank so far; seconds are those spent sending and receiving."""

    num_sent: int = 0
    sent_bytes: int = 0
    send_seconds: float = 0.0
    num_received: int = 0
    received_bytes: int = 0
    receive_seconds: float = 0.0  # from each message's first frame to its last
