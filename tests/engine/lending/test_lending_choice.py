"""Whether a rank requests experts from others: with auto by measured times, else by the option."""

import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharpi.engine.cluster import lending_round
from sharpi.engine.cluster.lending_round import LendingRound
from sharpi.engine.lending.expert_client import TOKENS_BETWEEN, ExpertSourceSelector, prefers_remote
from sharpi.engine.lending.lender import LendingMode, LendingOffer, Loan, lend
from sharpi.hardware.rates import DiskRate

EXPERT_BYTES = 2_000_000
REMOTE, READ = "computed by rank 1 on there", "read from the disk, not computed by rank 1 on there"


class PublishingGroup:
    """The first of two ranks; the other has RAM to spare."""

    rank, hosts = 0, ("here", "there")

    def __init__(self) -> None:
        self.published: dict[str, object] = {}

    def exchange(self, name: str, own: LendingOffer) -> list[LendingOffer]:
        assert name == "lending offer"
        return [own, LendingOffer(100 * EXPERT_BYTES, (), own.instruction_set)]

    def publish(self, name: str, value: object) -> None:
        self.published[name] = value

    def request_channel(self, rank: int) -> SimpleNamespace:
        return SimpleNamespace(other=rank)

    def when_lost(self, on_lost: object) -> None:
        self.published["when lost"] = on_lost


class TimedClient:
    """A client whose measured times the test sets."""

    seconds = 0.0
    made: "list[TimedClient]" = []  # noqa: RUF012

    def __init__(self, shape: object, loans: Sequence[Loan], *others: object) -> None:
        self.loans, self.is_paused = loans, False
        self.selector: ExpertSourceSelector | None = None
        TimedClient.made.append(self)

    def round_trip(self) -> float:
        return self.seconds

    def pause(self) -> None:
        self.is_paused = True

    def use_selector(self, selector: ExpertSourceSelector) -> None:
        self.selector = selector
        selector.close()

    def lost(self, rank: int) -> None:
        raise AssertionError("no rank is lost here")


def model_with_few_slots() -> Any:
    layers = [SimpleNamespace(index=0, ram_slots=4, num_experts=8)]
    decided = SimpleNamespace(
        file=SimpleNamespace(parts=[Path("model.gguf")], missing_parts=frozenset()),
        model=SimpleNamespace(num_layers=1, num_experts=8, num_experts_per_token=2),
        settings=SimpleNamespace(instruction_set="avx2"),
        plan=SimpleNamespace(is_mapped=False, gpus=(), layers=layers),
    )
    return SimpleNamespace(decided=decided, weights=None, tier=object())


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a round whose request and read take these milliseconds."""

    def make(
        request_ms: float, read: float, mode: LendingMode
    ) -> tuple[LendingRound, PublishingGroup]:
        rate = DiskRate(EXPERT_BYTES / (read / 1e3), is_direct=True)
        layer = SimpleNamespace(num_experts=8, expert_bytes=EXPERT_BYTES)
        layout = SimpleNamespace(layers=[layer])
        monkeypatch.setattr(lending_round, "measure_disk", lambda path, seconds: rate)
        monkeypatch.setattr(lending_round, "read_layout", lambda file, num_layers: layout)
        monkeypatch.setattr(lending_round, "layers_of_parts", lambda file, parts: frozenset())
        monkeypatch.setattr(lending_round, "ExpertPrograms", lambda *arguments: None)
        monkeypatch.setattr(lending_round, "ExpertClient", TimedClient)
        monkeypatch.setattr(TimedClient, "seconds", request_ms / 1e3)
        monkeypatch.setattr(TimedClient, "made", [])
        group = PublishingGroup()
        lent = LendingRound(group, model_with_few_slots(), mode, print)  # type: ignore[arg-type]
        return lent, group

    return make


@pytest.mark.parametrize(
    ("request_ms", "read", "mode", "is_remote"),
    [
        (1.0, 1.1, "auto", True),
        (1.1, 1.0, "auto", False),
        (1.0, 1.0, "auto", False),
        (0.3, 40.0, "auto", True),
        (40.0, 0.3, "auto", False),
        (40.0, 0.3, "on", True),
    ],
)
def test_a_rank_sends_requests_where_a_read_is_slower(
    request_ms: float, read: float, mode: LendingMode, is_remote: bool, measured: Any
) -> None:
    lent, group = measured(request_ms, read, mode)
    assert group.published["uses remote experts"] is is_remote
    (note,) = lent.notes
    assert (REMOTE if is_remote else READ) in note
    assert f"a request takes {request_ms:.2f} ms, a read {read:.2f} ms" in note
    (client,) = TimedClient.made
    assert lent.client is client  # type: ignore[comparison-overlap]
    assert client.is_paused is not is_remote
    assert (client.selector is not None) is (mode == "auto")
    assert client.loans == [Loan(1, 0, 0, 0, 8)]


def test_who_is_told_not_to_send_requests_measures_nothing(measured: Any) -> None:
    lent, group = measured(1.0, 40.0, "off")
    assert (lent.client, lent.notes, group.published) == (None, (), {})
    assert TimedClient.made == []


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


SIZES = {0: (8, 100), 1: (4, 1000), 2: (16, 10)}
ALL_BYTES = sum(number * size for number, size in SIZES.values())
KERNELS = st.sampled_from(["avx512", "avx2"])
MODES = st.sampled_from(["auto", "on", "off"])
LACKING = st.sampled_from([(), (0,), (1, 2), (0, 1, 2)])
OFFERS = st.lists(
    st.builds(LendingOffer, st.integers(0, ALL_BYTES), LACKING, KERNELS, MODES), max_size=4
)


@given(OFFERS)
def test_each_expert_has_one_lender_that_has_free_ram_and_the_same_kernels(
    offers: list[LendingOffer],
) -> None:
    loans = lend(offers, SIZES)
    lent = [(loan.owner, loan.layer, e) for loan in loans for e in range(loan.first, loan.end)]
    assert len(set(lent)) == len(lent)
    for rank, offer in enumerate(offers):
        own = [loan for loan in loans if loan.lender == rank]
        assert sum((loan.end - loan.first) * SIZES[loan.layer][1] for loan in own) <= offer.spare
    for loan in loans:
        lender, owner = offers[loan.lender], offers[loan.owner]
        assert loan.layer in owner.layers_with_misses
        assert not lender.layers_with_misses
        assert lender.instruction_set == owner.instruction_set
        assert "off" not in (lender.mode, owner.mode)


def test_all_experts_are_lent_where_ram_is_free() -> None:
    offers = [LendingOffer(0, (0, 2), "avx2"), LendingOffer(10_000, (), "avx2")]
    assert [(loan.layer, loan.first, loan.end) for loan in lend(offers, SIZES)] == [
        (0, 0, 8),
        (2, 0, 16),
    ]


def test_two_lenders_share_what_one_has_no_ram_for() -> None:
    offers = [
        LendingOffer(0, (1,), "avx2"),
        LendingOffer(1999, (), "avx2"),
        LendingOffer(9999, (), "avx2"),
    ]
    assert [(loan.lender, loan.first, loan.end) for loan in lend(offers, SIZES)] == [
        (1, 3, 4),
        (2, 0, 3),
    ]


def test_a_rank_with_all_its_experts_borrows_none() -> None:
    assert lend([LendingOffer(0, (), "avx2"), LendingOffer(9999, (), "avx2")], SIZES) == ()
