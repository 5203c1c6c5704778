"""WireCount: the messages and bytes that one rank sent and received, and the seconds spent."""

from msgspec import Struct


class WireCount(Struct):
    """One rank's counts of sent and received messages since the start, with their seconds."""

    num_sent: int = 0
    sent_bytes: int = 0
    send_seconds: float = 0.0
    num_received: int = 0
    received_bytes: int = 0
    receive_seconds: float = 0.0  # from each message's first frame to its last
