"""Whether a rank asks another one for experts: with auto by measured times, else by the option."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sharpi.engine.cluster import lending_round
from sharpi.engine.cluster.lending_round import LendingRound
from sharpi.engine.lending.choice import Choice
from sharpi.engine.lending.loan import Loan, Room, Wish
from sharpi.hardware.disk import DiskRate

EXPERT_BYTES = 2_000_000
ASKED, READ = "computed by rank 1 on there", "read from the disk, not computed by rank 1 on there"


class StatingGroup:
    """The first of two ranks; the other has RAM to spare."""

    rank, hosts = 0, ("here", "there")

    def __init__(self) -> None:
        self.stated: dict[str, object] = {}

    def exchange(self, name: str, own: Room) -> list[Room]:
        assert name == "room"
        return [own, Room(100 * EXPERT_BYTES, (), own.instruction_set)]

    def state(self, name: str, statement: object) -> None:
        self.stated[name] = statement

    def line(self, rank: int) -> SimpleNamespace:
        return SimpleNamespace(other=rank)

    def when_lost(self, on_lost: object) -> None:
        self.stated["when lost"] = on_lost


class TimedAsker:
    """An asker whose measured times the test sets."""

    seconds = 0.0
    made: "list[TimedAsker]" = []  # noqa: RUF012

    def __init__(self, shape: object, loans: Sequence[Loan], *others: object) -> None:
        self.loans, self.is_paused = loans, False
        self.choice: Choice | None = None
        TimedAsker.made.append(self)

    def round_trip(self) -> float:
        return self.seconds

    def pause(self) -> None:
        self.is_paused = True

    def choose_again(self, choice: Choice) -> None:
        self.choice = choice
        choice.close()

    def lost(self, rank: int) -> None:
        raise AssertionError("no rank is lost here")


def model_with_few_slots() -> Any:
    layers = [SimpleNamespace(index=0, ram_slots=4, num_experts=8)]
    return SimpleNamespace(
        file=SimpleNamespace(parts=[Path("model.gguf")], lacking=frozenset()),
        config=SimpleNamespace(num_layers=1, num_experts=8, num_experts_per_token=2),
        weights=None,
        settings=SimpleNamespace(instruction_set="avx2"),
        plan=SimpleNamespace(is_mapped=False, gpus=(), layers=layers),
        tier=object(),
    )


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a round whose question and read take these milliseconds."""

    def make(question: float, read: float, wish: Wish) -> tuple[LendingRound, StatingGroup]:
        rate = DiskRate(EXPERT_BYTES / (read / 1e3), is_direct=True)
        layer = SimpleNamespace(num_experts=8, expert_bytes=EXPERT_BYTES)
        layout = SimpleNamespace(layers=[layer])
        monkeypatch.setattr(lending_round, "measure_disk", lambda path, seconds: rate)
        monkeypatch.setattr(lending_round, "read_layout", lambda file, num_layers: layout)
        monkeypatch.setattr(lending_round, "lacking_layers", lambda file, lacking: frozenset())
        monkeypatch.setattr(lending_round, "ExpertPrograms", lambda *arguments: None)
        monkeypatch.setattr(lending_round, "Asker", TimedAsker)
        monkeypatch.setattr(TimedAsker, "seconds", question / 1e3)
        monkeypatch.setattr(TimedAsker, "made", [])
        group = StatingGroup()
        lent = LendingRound(group, model_with_few_slots(), wish, print)  # type: ignore[arg-type]
        return lent, group

    return make


@pytest.mark.parametrize(
    ("question", "read", "wish", "asks"),
    [
        (1.0, 1.1, "auto", True),
        (1.1, 1.0, "auto", False),
        (1.0, 1.0, "auto", False),
        (0.3, 40.0, "auto", True),
        (40.0, 0.3, "auto", False),
        (40.0, 0.3, "on", True),
    ],
)
def test_a_rank_asks_where_a_read_is_slower_than_a_question(
    question: float, read: float, wish: Wish, asks: bool, measured: Any
) -> None:
    lent, group = measured(question, read, wish)
    assert group.stated["asks"] is asks
    (note,) = lent.notes
    assert (ASKED if asks else READ) in note
    assert f"a question takes {question:.2f} ms, a read {read:.2f} ms" in note
    (asker,) = TimedAsker.made
    assert lent.asker is asker  # type: ignore[comparison-overlap]
    assert asker.is_paused is not asks
    assert (asker.choice is not None) is (wish == "auto")
    assert asker.loans == [Loan(1, 0, 0, 0, 8)]


def test_who_is_told_not_to_ask_measures_nothing(measured: Any) -> None:
    lent, group = measured(1.0, 40.0, "off")
    assert (lent.asker, lent.notes, group.stated) == (None, (), {})
    assert TimedAsker.made == []
