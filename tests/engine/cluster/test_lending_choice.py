"""Whether a rank requests experts from others: with auto by measured times, else by the option."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sharpi.engine.cluster import lending_round
from sharpi.engine.cluster.lending_round import LendingRound
from sharpi.engine.lending.expert_source_selector import ExpertSourceSelector
from sharpi.engine.lending.loan import LendingMode, LendingOffer, Loan
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
    return SimpleNamespace(
        file=SimpleNamespace(parts=[Path("model.gguf")], missing_parts=frozenset()),
        config=SimpleNamespace(num_layers=1, num_experts=8, num_experts_per_token=2),
        weights=None,
        settings=SimpleNamespace(instruction_set="avx2"),
        plan=SimpleNamespace(is_mapped=False, gpus=(), layers=layers),
        tier=object(),
    )


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
