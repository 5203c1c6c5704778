"""Measures the links between all ranks in both directions: bandwidth, and latency of 8 KB."""

import statistics
import threading
import time
from itertools import permutations

import numpy as np
from msgspec import Struct

from sharpi.cluster.group import Group, RequestChannel
from sharpi.errors import ClusterError
from sharpi.system.process import start_native

SMALL_BYTES = 8 << 10  # about one token's hidden values
_FRAME_BYTES = 256 << 10
_ROUND_TRIPS = 50
_FEWEST_FRAMES, _MOST_FRAMES = 16, 1024
_RATE_SECONDS = 0.3
_LOOK_SECONDS = 0.1


class LinkRate(Struct, frozen=True):
    """The latency and bandwidth from one rank to another."""

    source: int
    target: int
    latency: float  # seconds that 8 KB take, half of a round trip
    rate: float  # bytes per second


class _Links(Struct, frozen=True):
    """The measurements of one rank, which it shares with the other ranks."""

    links: list[LinkRate]


def measure_links(group: Group) -> list[LinkRate]:
    """Measures all links, in one list for all ranks; raises ClusterError if one is lost."""
    done: list[list[LinkRate]] = []
    worker = threading.Thread(target=lambda: done.append(_measure(group)), daemon=True)
    start_native(worker)
    while worker.is_alive():
        group.raise_if_failed()
        worker.join(_LOOK_SECONDS)
    if not done:
        group.raise_if_failed()
        raise ClusterError("another rank has ended or cannot be reached")
    return done[0]


def _measure(group: Group) -> list[LinkRate]:
    own = []
    for number, (source, target) in enumerate(permutations(range(group.size), 2)):
        # So that nobody sends to a rank that is still measuring.
        group.exchange(f"link {number}", True)
        if group.rank == source:
            channel = group.request_channel(target)
            own.append(LinkRate(source, target, _latency(channel), _rate(channel)))
        elif group.rank == target:
            _answer(group.request_channel(source))
    each = group.exchange("links", _Links(own))
    links = (link for rank in each for link in rank.links)
    return sorted(links, key=lambda link: (link.source, link.target))


def _latency(channel: RequestChannel) -> float:
    """Returns half of the median time of 50 round trips of 8 KB, in seconds."""
    times = []
    for _ in range(_ROUND_TRIPS):
        start = time.perf_counter()
        channel.call(bytes(SMALL_BYTES), SMALL_BYTES)
        times.append(time.perf_counter() - start)
    return statistics.median(times) / 2


def _rate(channel: RequestChannel) -> float:
    """Returns bytes per second, measured by a transfer of about 0.3 s."""
    wanted = int(_timed_frames(channel, _FEWEST_FRAMES) * _RATE_SECONDS / _FRAME_BYTES)
    return _timed_frames(channel, max(_FEWEST_FRAMES, min(_MOST_FRAMES, wanted)))


def _timed_frames(channel: RequestChannel, count: int) -> float:
    frame, start = np.zeros(_FRAME_BYTES, np.uint8), time.perf_counter()
    channel.send_request(np.array([count], np.int64).view(np.uint8))
    for _ in range(count - 1):
        channel.send_request(frame)
    channel.call(frame.tobytes(), SMALL_BYTES)
    return count * _FRAME_BYTES / (time.perf_counter() - start)


def _answer(channel: RequestChannel) -> None:
    """Plays the other side while the other rank measures latency and then rate."""
    small, frame = np.zeros(SMALL_BYTES, np.uint8), np.zeros(_FRAME_BYTES, np.uint8)
    for _ in range(_ROUND_TRIPS):
        channel.receive_request(small)
        channel.send_reply(small)
    number = np.zeros(1, np.int64)
    for _ in range(2):
        channel.receive_request(number.view(np.uint8))
        for _ in range(min(int(number[0]), _MOST_FRAMES)):
            channel.receive_request(frame)
        channel.send_reply(small)
