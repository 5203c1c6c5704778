"""Counts that contradict each other are found, and neither written nor shown."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from expert_runs import a_run
from msgspec.structs import replace

from sharpi.errors import StatsFileError
from sharpi.experts.stats.stats import ExpertStats, HitCount, LayerStats, PhaseCounts
from sharpi.experts.stats.stats_file import contradiction, read_stats, save_stats, to_json


def layer_with(**fields: object) -> Callable[[ExpertStats], ExpertStats]:
    return lambda run: replace(run, layers=(replace(run.layers[0], **fields), *run.layers[1:]))


def decode_with(**fields: object) -> Callable[[ExpertStats], ExpertStats]:
    def change(run: ExpertStats) -> ExpertStats:
        first: LayerStats = run.layers[0]
        return layer_with(decode=replace(first.decode, **fields))(run)

    return change


CASES: dict[str, Callable[[ExpertStats], ExpertStats]] = {
    "do not add up to 60 lookups": decode_with(hits=10**12),
    "59 hits, 3 late, 3 loads, 0 computed, 0 remote and 0 mapped": decode_with(hits=59),
    "0 mapped do not add up to 61 lookups": decode_with(accesses=61),
    "5 bytes for 3 loads of 1000 bytes": decode_with(bytes_loaded=5),
    "stalled 1.000 s, but all experts were there": decode_with(
        hits=60, late=0, loads=0, bytes_loaded=0, prefetched=0, prefetch_used=0, stall_seconds=1.0
    ),
    "30 of 20 prefetched experts were used": decode_with(prefetch_used=26),
    "5 slots for 4 experts": layer_with(num_slots=5),
    "100 lookups, but 3 uses": layer_with(uses=(1, 1, 1, 0)),
    "4999 bytes read, of which 5000 for loads": layer_with(bytes_read=4999),
    "pinned experts that it does not have, or twice": layer_with(pinned=(4,)),
    "before and after the warm pin are 199 and 180, in all 200 and 180": lambda run: replace(
        run, before_pin=HitCount(49, 30)
    ),
    "on one side of the warm pin only": lambda run: replace(run, after_pin=None),
    "81 right of 100 predicted and 80 used": lambda run: replace(
        run, prediction=replace(run.prediction, right=81)
    ),
    "predictions in 5 of 4 steps": lambda run: replace(
        run, prediction=replace(run.prediction, predicted_steps=5)
    ),
    "a capacity factor of 1.5": lambda run: replace(
        run, skew=replace(run.skew, capacity_factor=1.5)
    ),
    "RAM: layer 0: 5 slots": lambda run: replace(run, below=layer_with(num_slots=5)(run)),
}


def test_a_sound_run_has_none() -> None:
    assert contradiction(a_run()) is None
    assert contradiction(replace(a_run(), layers=(), before_pin=None, after_pin=None)) is None


@pytest.mark.parametrize("what", CASES)
def test_each_is_named_and_refused(what: str, tmp_path: Path) -> None:
    wrong = CASES[what](a_run())
    assert what in (contradiction(wrong) or "")
    path = tmp_path / "s.json"
    warning = save_stats(path, wrong) or ""
    assert what in warning
    assert "\n" not in warning
    assert not path.exists()
    path.write_text(to_json(wrong))
    with pytest.raises(StatsFileError, match=r"s\.json: impossible expert stats"):
        read_stats(path)


def test_reads_that_failed_are_not_missed() -> None:
    short = layer_with(bytes_read=0)(a_run())
    assert contradiction(short) is not None
    assert contradiction(replace(short, failed_reads=1)) is None


def test_a_phase_without_counts_is_sound() -> None:
    run = a_run()
    layers = tuple(replace(each, prompt=PhaseCounts(), uses=each.uses) for each in run.layers)
    without = replace(run, layers=layers, before_pin=None, after_pin=None)
    assert contradiction(without) is None
    assert json.loads(to_json(without))["prompt"]["hit_rate"] is None
