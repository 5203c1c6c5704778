"""Measures the links between all ranks in both directions: bandwidth, and latency of 8 KB."""

import statistics
import threading
import time
from itertools import permutations
from typing import Any

from msgspec import Struct

from sharpi.cluster.group import Group
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
    """Measures the links one after the other; all ranks have to call it, and get the same list.

    The list is sorted by source and target. Raises ClusterError if a rank is lost meanwhile.
    """
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
            wire = _Wire(group.torch, target)
            own.append(LinkRate(source, target, wire.latency(), wire.rate()))
        elif group.rank == target:
            _Wire(group.torch, source).answer()
    each = group.exchange("links", _Links(own))
    return sorted((link for rank in each for link in rank.links), key=_order)


def _order(link: LinkRate) -> tuple[int, int]:
    return link.source, link.target


class _Wire:
    """The connection to one other rank, for measurements."""

    def __init__(self, torch: Any, other: int) -> None:
        self._torch, self._other = torch, other
        self._group = torch.distributed.group.WORLD
        self._small = torch.zeros(SMALL_BYTES, dtype=torch.uint8)
        self._frame = torch.zeros(_FRAME_BYTES, dtype=torch.uint8)

    def _send(self, tensor: Any) -> None:
        self._group.send([tensor], self._other, 0).wait()

    def _receive(self, tensor: Any) -> None:
        self._group.recv([tensor], self._other, 0).wait()

    def latency(self) -> float:
        """Returns half of the median time of 50 round trips of 8 KB, in seconds."""
        return statistics.median(self._round_trip() for _ in range(_ROUND_TRIPS)) / 2

    def _round_trip(self) -> float:
        start = time.perf_counter()
        self._send(self._small)
        self._receive(self._small)
        return time.perf_counter() - start

    def rate(self) -> float:
        """Returns bytes per second, measured by a transfer of about 0.3 s."""
        first = self._timed_frames(_FEWEST_FRAMES)
        wanted = int(first * _RATE_SECONDS / _FRAME_BYTES)
        return self._timed_frames(max(_FEWEST_FRAMES, min(_MOST_FRAMES, wanted)))

    def _timed_frames(self, count: int) -> float:
        start = time.perf_counter()
        self._send(self._torch.tensor([count], dtype=self._torch.int64))
        for _ in range(count):
            self._send(self._frame)
        self._receive(self._small)
        return count * _FRAME_BYTES / (time.perf_counter() - start)

    def answer(self) -> None:
        """Plays the other side while the other rank calls `latency` and then `rate`."""
        for _ in range(_ROUND_TRIPS):
            self._receive(self._small)
            self._send(self._small)
        for _ in range(2):
            number = self._torch.zeros(1, dtype=self._torch.int64)
            self._receive(number)
            for _ in range(min(int(number), _MOST_FRAMES)):
                self._receive(self._frame)
            self._send(self._small)
