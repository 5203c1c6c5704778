"""A rank decides again whether others compute experts when the measured times have changed."""

import threading

import pytest

from sharpi.engine.lending.expert_source_selector import (
    TOKENS_BETWEEN,
    ExpertSourceSelector,
    prefers_remote,
)


@pytest.mark.parametrize(
    ("is_remote", "round_trip", "read", "expected"),
    [
        (True, 1.0, 5.0, True),
        (True, 1.2, 1.0, True),  # too little to change
        (True, 1.3, 1.0, False),
        (False, 1.0, 1.2, False),
        (False, 1.0, 1.3, True),
        (False, float("inf"), 9.0, False),  # all lenders are lost
    ],
)
def test_a_change_has_to_pay_by_far(
    is_remote: bool, round_trip: float, read: float, expected: bool
) -> None:
    assert prefers_remote(is_remote, round_trip, read) is expected


class Link:
    """A link and a disk whose times the test sets."""

    def __init__(self, round_trip: float, read: float) -> None:
        self.times = [round_trip, read]
        self.done: list[str] = []
        self.measured = threading.Semaphore(0)

    def round_trip(self) -> float:
        return self.times[0]

    def read(self) -> float:
        self.measured.release()
        return self.times[1]

    def resume(self) -> None:
        self.done.append("resume")

    def pause(self) -> None:
        self.done.append("pause")

    def changed(self, is_remote: bool, round_trip: float, read: float) -> None:
        self.done.append(f"{is_remote} {round_trip} {read}")


def test_latencies_that_change_turn_requests_off_and_on() -> None:
    link = Link(1.0, 4.0)
    with ExpertSourceSelector(link, link.read, True, link.changed) as selector:
        selector.decide()
        link.times[0] = 9.0  # the network is congested
        selector.decide()
        selector.decide()
        link.times[0] = 1.0
        selector.decide()
        link.times[1] = 0.5  # a faster disk
        selector.decide()
    assert link.done == [
        *("pause", "False 9.0 4.0"), *("resume", "True 1.0 4.0"), *("pause", "False 1.0 0.5"),
    ]  # fmt: skip


def test_nothing_is_measured_before_so_many_tokens() -> None:
    link = Link(9.0, 1.0)
    with ExpertSourceSelector(link, link.read, True, link.changed) as selector:
        for _ in range(TOKENS_BETWEEN - 1):
            selector.count(1)
        assert not link.measured.acquire(timeout=0.05)
        selector.count(1)
        assert link.measured.acquire(timeout=20)
        selector.count(TOKENS_BETWEEN // 2)
        assert not link.measured.acquire(timeout=0.05)
    assert link.done == ["pause", "False 9.0 1.0"]


def test_a_lost_rank_ends_the_measurements() -> None:
    link = Link(1.0, 1.0)

    def fail() -> float:
        link.read()
        raise OSError("lost")

    with ExpertSourceSelector(link, fail, False, link.changed) as selector:
        selector.count(TOKENS_BETWEEN)
        assert link.measured.acquire(timeout=20)
        selector.count(TOKENS_BETWEEN)
        assert not link.measured.acquire(timeout=0.05)
    assert link.done == []
