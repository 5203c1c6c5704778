"""Slots give memory to others and take it back, and the text stays the same, bit for bit."""

import os
import threading
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from streamed_models import DEMO, GREEDY, REFERENCES, decode

from sharpi.engine import memory_watch
from sharpi.engine.engine import Engine
from sharpi.engine.memory_watch import SlotBudget
from sharpi.hardware.memory import MemoryInfo
from sharpi.system.files import runtime_folder

pytestmark = pytest.mark.native
MIB = 1 << 20
LEAST, MOST = 48 * MIB, 1000 * MIB
TAKEN, TOKENS = 50, 2000
MODEL, SLOTS, IDS = REFERENCES / "qwen3moe.gguf", 3, list(range(3, 43))


class Others:
    """Takes memory beside the slots of a machine with `total` bytes, as a gauge tells it."""

    def __init__(self, total: int = 1200 * MIB) -> None:
        self.budget, self.total, self.taken, self.stalled = SlotBudget(LEAST), total, 0, 0.0
        self.slots, self.now = MOST, 0.0

    @property
    def free(self) -> int:
        return self.total - self.slots - self.taken

    def look(self, taken: int = 0, stalled: float = 0.0) -> int:
        """Takes memory until the next look; returns the bytes of the slots after it."""
        self.taken += taken
        self.stalled += stalled
        self.now += self.budget.pause()
        self.slots = self.budget.next(self.now, self.free, self.stalled, self.slots, MOST)
        return self.slots


def test_slots_shrink_before_memory_runs_out_and_grow_once_it_is_free() -> None:
    others = Others()
    assert others.look() == MOST
    while others.taken < 400 * MIB:  # at 2 GB/s
        others.look(taken=int(others.budget.pause() * 2e9))
        assert others.free > 0
    assert others.slots < 750 * MIB
    short = others.slots
    others.taken = 0
    assert others.look() == short  # it may be taken again at once
    for _ in range(60):
        before, has = others.free, others.slots
        assert has <= others.look() <= has + 32 * MIB
        assert others.free >= LEAST or others.free == before
    assert others.slots == MOST


def test_slots_larger_than_a_growth_come_back() -> None:
    """Slots of 100 MiB each: what is given to less than one more is of no use."""
    slot, slots, growth = 100 * MIB, 0, []
    budget = SlotBudget(LEAST, slot)
    for number in range(1, 60):
        given = budget.next(0.5 * number, 1200 * MIB - slots, 0.0, slots, MOST)
        growth.append(given - slots)
        slots = given // slot * slot
    assert set(growth) == {0, slot}
    assert slots == MOST


def test_memory_that_runs_out_at_once_takes_all_slots() -> None:
    others = Others()
    others.look()
    assert others.look(taken=2000 * MIB) == 0
    others.taken = 0
    others.look()
    others.now += 1
    assert others.look() > 0


def test_waits_for_memory_make_slots_shrink_earlier() -> None:
    calm, waiting = Others(), Others()
    for others, stalled in ((calm, 0.0), (waiting, 0.1)):
        others.look()
        others.now += 1
        others.look(taken=100 * MIB, stalled=stalled)
    assert calm.slots == MOST
    assert waiting.slots < MOST


def test_a_look_is_due_sooner_the_less_is_free() -> None:
    budget, pauses = SlotBudget(LEAST), []
    for at, free in enumerate((8000 * MIB, 700 * MIB, 100 * MIB, 0)):
        budget.next(at + 1.0, free, 0.0, MOST, MOST)
        pauses.append(budget.pause())
    assert pauses == sorted(pauses, reverse=True)
    assert pauses[0] == 0.5
    assert pauses[-1] == 0.02


class Script:
    """A gauge that says in turns that memory is short and that it is free."""

    def __init__(self) -> None:
        self.free = 4 * LEAST

    def read(self) -> MemoryInfo:
        return MemoryInfo(total=1000 * MIB, free=self.free)

    def stalled(self) -> float:
        return 0.0


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    gauge = Script()
    monkeypatch.setattr(memory_watch, "_GROW_AFTER", 0.0)
    monkeypatch.setattr(memory_watch, "_PAUSES", (0.001, 0.001))
    monkeypatch.setattr(memory_watch, "MemoryGauge", lambda: gauge)
    return gauge


@pytest.mark.slow
def test_text_stays_the_same_while_memory_is_taken_and_returned(
    script: Script, load: Callable[..., Engine], capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"context_size": 2304, "num_threads": 2}
    expected = decode(load(MODEL, **options), IDS, TOKENS)
    engine = load(MODEL, moe_slots=SLOTS, **options)
    assert engine._tier is not None
    most = sum(engine._tier.store.slots)
    generation = engine.session().generate(IDS, replace(GREEDY, max_tokens=TOKENS))
    taken = 0
    for _ in generation:
        if sum(engine._tier.store.slots) == (most if script.free else 0):
            taken += script.free > 0
            script.free = 0 if script.free else 4 * LEAST
    assert generation.ids == expected
    assert taken > TAKEN
    assert capsys.readouterr().err.count("expert slots gave back") == 1


def test_a_load_that_fails_leaves_nothing_behind(
    script: Script, load: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError("none is left")

    before = threading.active_count()
    with monkeypatch.context() as patch:
        patch.setattr("sharpi.engine.loader.Runner", fail)
        with pytest.raises(MemoryError):
            load(DEMO, moe_slots=4)
    assert threading.active_count() == before
    assert not list(runtime_folder().glob(f"{os.getpid()}-*.memory"))


def test_a_closed_engine_watches_no_more(script: Script, load: Callable[..., Engine]) -> None:
    engine = load(DEMO, moe_slots=4)
    assert "memory-watch" in {thread.name for thread in threading.enumerate()}
    engine.close()
    assert "memory-watch" not in {thread.name for thread in threading.enumerate()}
