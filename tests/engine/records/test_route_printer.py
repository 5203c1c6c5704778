"""--trace-moe: every token of a prompt and of an answer, at its own position."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from streamed_models import NUM_LAYERS, PROMPT, asked, decode

from sharpi.engine.engine import Engine
from sharpi.experts.trace.trace import read_trace

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
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
