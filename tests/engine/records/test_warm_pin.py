"""The warm pin and the set chosen by frequency, in runs of ordinary length."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from streamed_models import NUM_LAYERS, asked, decode, story_ids

from sharpi.engine.engine import Engine
from sharpi.experts.stats.stats import ExpertStats
from sharpi.experts.stats.stats_checks import contradiction
from sharpi.settings import ExpertConfig

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
Run = Callable[..., tuple[ExpertStats, Engine]]


@pytest.fixture
def run(load: Load, quick_demo: Path) -> Run:
    """Decodes a story with some slots; the engine is closed then."""

    def run_one(slots: int, max_tokens: int, experts: ExpertConfig) -> tuple[ExpertStats, Engine]:
        engine = load(quick_demo, moe_slots=slots, context_size=512, experts=experts)
        decode(engine, story_ids(engine), max_tokens)
        stats = engine.expert_stats()
        assert stats is not None
        assert contradiction(stats) is None
        engine.close()
        return stats, engine

    return run_one


@pytest.mark.slow
@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize("policy", ["lru", "slru", "learned-keep", None])
def test_it_happens_and_says_so(
    policy: str | None, prefetch: bool, run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    experts = asked(policy=policy, warm_pin=2, prefetch=prefetch)
    stats, engine = run(4, 100, experts)
    assert all(len(layer.pinned) == 2 for layer in stats.layers)
    assert stats.before_pin is not None
    assert stats.after_pin is not None
    assert 512 <= stats.before_pin.accesses < 512 + 2 * NUM_LAYERS
    sums = zip(stats.before_pin, stats.after_pin, strict=True)
    assert tuple(a + b for a, b in sums) == stats.hit_count
    lines = [line for line in capfd.readouterr().err.splitlines() if "warm pin" in line]
    assert len(lines) == 1
    assert re.search(r"note: warm pin: the most used 2 experts .* after 5\d\d lookups", lines[0])
    assert not any("warm pin" in note for note in engine.exit_notes)


def test_lru_pins_by_itself(run: Run) -> None:
    stats, _ = run(8, 100, asked(policy="lru"))
    assert all(len(layer.pinned) == 2 for layer in stats.layers)
    assert stats.before_pin is not None


def test_the_default_policy_says_why_it_does_not(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    stats, engine = run(4, 100, asked())
    assert (stats.before_pin, stats.layers[0].pinned) == (None, ())
    assert any("no warm pin: with " in note for note in stats.notes)
    assert engine.exit_notes == ()
    assert "warm pin" not in capfd.readouterr().err


def test_one_that_did_not_happen_is_told_at_the_end(run: Run) -> None:
    stats, engine = run(4, 5, asked(warm_pin=2, warm_pin_after=100_000))
    assert stats.before_pin is None
    (note,) = engine.exit_notes
    assert note == (
        f"no warm pin in RAM: there were {stats.hit_count.accesses} lookups of experts, and it is"
        " due at 100000"
    )


@pytest.mark.slow
def test_a_set_by_frequency_starts_full_and_learns(run: Run) -> None:
    asked_for = asked(resident="frequency", prefetch=False)
    learned, _ = run(4, 400, asked_for)
    first, _ = run(4, 400, asked(resident="first-n", prefetch=False))
    assert learned.before_pin is not None
    assert learned.before_pin.hits > 0
    assert learned.fills >= 4 * NUM_LAYERS
    assert learned.hit_count.hits > 1.1 * first.hit_count.hits
    assert learned.bytes_read < learned.hit_count.accesses * learned.layers[0].expert_bytes
    assert all(len(layer.pinned) == 4 for layer in learned.layers)
