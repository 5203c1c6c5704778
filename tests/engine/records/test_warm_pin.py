"""The warm pin and the set chosen by frequency, in runs of ordinary length."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from streamed_models import (
    NUM_EXPERTS,
    NUM_LAYERS,
    NUM_USED,
    PROMPT,
    asked,
    decode,
    story_ids,
    write_mixed_model,
)

from sharpi.engine.engine import Engine
from sharpi.experts.stats.stats import ExpertStats
from sharpi.experts.stats.stats_file import contradiction
from sharpi.experts.trace.trace import read_trace
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
@pytest.mark.parametrize(
    ("policy", "prefetch"), [("lru", True), ("slru", False), ("learned-keep", True), (None, False)]
)
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
    assert tuple(a + b for a, b in sums) == stats.total.hit_count
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
        f"no warm pin in RAM: there were {stats.total.accesses} lookups of experts, and it is"
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
    assert learned.total.hit_count.hits > 1.1 * first.total.hit_count.hits
    assert learned.bytes_read < learned.total.hit_count.accesses * learned.layers[0].expert_bytes
    assert all(len(layer.pinned) == 4 for layer in learned.layers)


LINE = re.compile(
    r"moe: position (\d+) layer (\d+) experts ([\d ]+?)(?: loads (\d+) pinned (.+))?$"
)


def lines_of(text: str) -> dict[tuple[int, int], re.Match[str]]:
    """Returns the lines by position and layer, of which there is one each."""
    found = [match for match in map(LINE.match, text.splitlines()) if match]
    lines = {(int(match[1]), int(match[2])): match for match in found}
    assert len(lines) == len(found)
    return lines


@pytest.mark.parametrize("batch_size", [512, 7])
@pytest.mark.parametrize("slots", [None, 3])
def test_routes_are_those_of_the_trace(
    slots: int | None, batch_size: int, load: Load, quick_demo: Path, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    experts = asked(trace_routes=True, trace=tmp_path / "t.npz")
    options = {"context_size": 128, "batch_size": batch_size, "moe_slots": slots}
    engine = load(quick_demo, experts=experts, **options)
    decode(engine, max_tokens=4)
    engine.close()
    lines, routes = lines_of(capfd.readouterr().err), read_trace(tmp_path / "t.npz").steps.routes
    assert set(lines) == {(p, n) for p in range(len(PROMPT) + 3) for n in range(NUM_LAYERS)}
    for (position, layer), match in lines.items():
        assert [*map(int, match[3].split())] == routes[position, layer].tolist()
        assert (match[4] is None) == (slots is None)


def test_without_a_trace_the_last_layer_has_only_outputs(
    load: Load, quick_demo: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    engine = load(quick_demo, moe_slots=3, context_size=128, experts=asked(trace_routes=True))
    decode(engine, max_tokens=3)
    engine.close()
    lines = lines_of(capfd.readouterr().err)
    last = [position for position, layer in lines if layer == NUM_LAYERS - 1]
    assert last == [len(PROMPT) - 1, len(PROMPT), len(PROMPT) + 1]
    assert (0, 0) in lines


def test_pins_are_shown(load: Load, quick_demo: Path, capfd: pytest.CaptureFixture[str]) -> None:
    experts = asked(trace_routes=True, resident="ids", resident_ids="2,5")
    engine = load(quick_demo, moe_slots=2, context_size=128, experts=experts)
    decode(engine, max_tokens=2)
    engine.close()
    assert {match[5] for match in lines_of(capfd.readouterr().err).values()} == {"2 5"}


def test_streamed_experts_are_where_the_policy_has_them(load: Load, quick_demo: Path) -> None:
    engine = load(quick_demo, moe_slots=4, context_size=256)
    before = engine.expert_view()
    decode(engine)
    after = engine.expert_view()
    assert before is not None
    assert after is not None
    assert after.layers == tuple(range(NUM_LAYERS))
    assert after.slots == (4,) * NUM_LAYERS
    assert after.resident.shape == after.uses.shape == (NUM_LAYERS, NUM_EXPERTS)
    assert not before.uses.any()
    assert (after.resident.sum(axis=1) == 4).all()
    assert after.counts is not None
    for layer, counts in enumerate(each.total for each in after.counts):
        assert counts.hits + counts.late + counts.loads == counts.accesses > 0
        assert after.uses[layer].sum() >= counts.accesses


def test_mapped_experts_are_counted_after_a_look(load: Load, quick_demo: Path) -> None:
    engine = load(quick_demo, context_size=256)
    decode(engine, max_tokens=4)
    first = engine.expert_view()
    decode(engine, max_tokens=4)
    second = engine.expert_view()
    assert first is not None
    assert second is not None
    assert first.counts is None
    assert first.resident.all()
    assert not first.uses.any(), "nobody looked on, and nothing was recorded"
    assert (second.uses.sum(axis=1) >= 4 * NUM_USED).all()
    assert engine.expert_stats() is None, "a look is no record"


def test_a_view_stays_as_it_was(load: Load, quick_demo: Path) -> None:
    engine = load(quick_demo, context_size=256)
    view = engine.expert_view()
    assert view is not None
    decode(engine, max_tokens=4)
    assert not view.uses.any()


def test_layers_without_experts_are_left_out(load: Load, tmp_path: Path) -> None:
    engine = load(write_mixed_model(tmp_path / "mixed.gguf"), moe_slots=2, context_size=128)
    decode(engine, [1, 2, 3], max_tokens=4)
    view = engine.expert_view()
    assert view is not None
    assert view.counts is not None
    assert 0 not in view.layers
    assert np.shape(view.uses)[0] == len(view.layers) == len(view.slots) == len(view.counts)


def test_a_dense_model_has_no_view(load: Load) -> None:
    assert load("qwen3").expert_view() is None
