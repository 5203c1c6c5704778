"""Slots that give way to the mapped file, and back: same bits, and statistics that add up."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from streamed_models import DEMO, NUM_LAYERS, NUM_USED, decode

from sharpi.engine.backends import expert_slots, expert_tier
from sharpi.engine.backends.file_choice import FileChoice
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.experts.file_trial import WindowCounts
from sharpi.experts.native.store import ExpertStore
from sharpi.experts.stats.stats_file import contradiction, read_stats
from sharpi.experts.stats.stats_text import tier_lines
from sharpi.settings import ExpertConfig, RunConfig

pytestmark = pytest.mark.native
TOKENS = 60


class Scripted(FileChoice):
    """Changes between slots and the file every 10 decoded tokens."""

    tokens = 0

    @property
    def is_wanted(self) -> bool:
        return self.tokens // 10 % 2 == 1

    def keep(self) -> None:
        type(self).kept += 1

    kept = 0

    def end_token(self, store: ExpertStore, seconds: float, *, is_usual: bool) -> None:
        del store, seconds, is_usual
        self.tokens += 1

    def end_token_in_file(self, seconds: float) -> None:
        del seconds
        self.tokens += 1


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], Engine]:
    """Returns a function that loads the demo model, where a script chooses slots or the file."""
    monkeypatch.setattr("sharpi.engine.loader.may_map", lambda config, plan: True)
    monkeypatch.setattr(expert_tier, "FileChoice", Scripted)
    experts = ExpertConfig(stats=tmp_path / "stats.json", profile=tmp_path / "uses.json")
    return lambda: load_engine(RunConfig(DEMO, context_size=256, moe_slots=4, experts=experts))


def test_tokens_stay_the_same_and_counts_add_up(load: Callable[[], Engine], tmp_path: Path) -> None:
    with load_engine(RunConfig(DEMO, context_size=256)) as engine:
        expected = decode(engine, max_tokens=TOKENS)
    with load() as engine:
        assert decode(engine, max_tokens=TOKENS) == expected
        seen = engine.expert_view()
    stats = read_stats(tmp_path / "stats.json")
    assert contradiction(stats) is None
    total, lookups = stats.decode, (TOKENS - 1) * NUM_LAYERS * NUM_USED
    assert total.accesses == lookups
    assert 0 < total.mapped < lookups
    assert total.mapped + total.hits + total.late + total.loads == lookups
    assert total.mapped % (NUM_LAYERS * NUM_USED) == 0
    assert sum(sum(layer.uses) for layer in stats.layers) >= stats.total.accesses
    assert seen is not None
    assert [tuple(row) for row in seen.uses.tolist()] == [layer.uses for layer in stats.layers]
    assert stats.prediction is not None
    assert 0 < stats.prediction.steps < TOKENS - 20  # none while the file was used


def test_prompts_and_several_texts_work_in_either_way(load: Callable[[], Engine]) -> None:
    with load_engine(RunConfig(DEMO, context_size=256)) as engine:
        expected = [decode(engine, list(range(3, 3 + n)), 12) for n in (5, 30, 17)]
    with load() as engine:
        assert [decode(engine, list(range(3, 3 + n)), 12) for n in (5, 30, 17)] == expected


def test_without_room_for_slots_the_file_stays(
    load: Callable[[], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    with load_engine(RunConfig(DEMO, context_size=256)) as engine:
        expected = decode(engine, max_tokens=TOKENS)
    Scripted.kept = 0
    with load() as engine:
        monkeypatch.setattr(expert_slots, "ExpertStore", _no_memory)
        assert decode(engine, max_tokens=TOKENS) == expected
        assert Scripted.kept > 0
        assert engine.expert_stats() is not None


def _no_memory(*_: object) -> ExpertStore:
    raise MemoryError


def test_a_window_is_judged_by_what_happened_in_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs the real choice, with a trial that begins at once and calls the file faster."""
    windows: list[tuple[WindowCounts, int]] = []

    def window(choice: FileChoice) -> tuple[WindowCounts, int]:
        windows.append(original(choice))
        return windows[-1]

    original = FileChoice.window
    monkeypatch.setattr("sharpi.engine.loader.may_map", lambda config, plan: True)
    monkeypatch.setattr("sharpi.experts.file_trial.FIRST_WINDOW", 16)
    monkeypatch.setattr("sharpi.experts.file_trial._BLOCK", 4)
    monkeypatch.setattr("sharpi.experts.file_trial._LEAST_STALL", -1.0)
    monkeypatch.setattr("sharpi.experts.file_trial.MARGIN", 1e-9)
    monkeypatch.setattr(FileChoice, "window", window)
    with load_engine(RunConfig(DEMO, context_size=256, moe_slots=4)) as engine:
        decode(engine, max_tokens=TOKENS)
        stats = engine.expert_stats()
    assert stats is not None
    assert "experts are now used where the file is mapped" in stats.notes[-1]
    assert stats.decode.accesses == (TOKENS - 1) * NUM_LAYERS * NUM_USED
    assert stats.total.mapped > 0  # counted although nobody asked for a file of statistics
    assert f"; {stats.total.mapped} in the mapped file\n" in "\n".join(tier_lines(stats))
    (counts, free_bytes), *_ = windows
    assert counts.uses.sum() == 15 * NUM_LAYERS * NUM_USED  # the first token begins the window
    assert np.all(counts.uses >= 0)
    assert 0 < counts.misses < counts.uses.sum()
    assert free_bytes > 0
    assert "note: experts are now used where the file is mapped" in capsys.readouterr().err
