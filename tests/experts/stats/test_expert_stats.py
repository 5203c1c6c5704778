"""Expert stats: sums, text and JSON that can be read back, and files that never end the run."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from expert_runs import a_layer, a_run
from msgspec.structs import replace

from sharpi.errors import StatsFileError
from sharpi.experts.layer_stats import HitCount, LayerStats, PhaseCounts, TopExpert
from sharpi.experts.stats.stats import ExpertStats
from sharpi.experts.stats.stats_file import (
    contradiction,
    format_stats,
    from_json,
    read_stats,
    save_stats,
    to_dict,
    to_json,
)


def test_sums_and_rates() -> None:
    run = a_run()
    assert run.total.hit_count == HitCount(200, 180)
    assert run.total.hit_count.rate == 0.9
    assert (run.prompt.accesses, run.decode.accesses) == (80, 120)
    assert (run.total.loads, run.total.late, run.bytes_read, run.fills) == (10, 10, 200_000, 3)
    assert run.total.stall_seconds == pytest.approx(0.2)
    assert run.per_token(run.decode.loads) == 6 / 4
    assert replace(run, num_tokens=0).per_token(3) is None
    assert run.prediction is not None
    assert (run.prediction.recall, run.prediction.precision) == (0.75, 0.6)
    assert replace(run.prediction, used=0, guessed=0).recall is None
    assert replace(run.prediction, used=0, guessed=0).precision is None


def test_top_experts() -> None:
    first, even, idle = a_run().layers
    assert first.top() == (TopExpert(2, 0.7), TopExpert(1, 0.2), TopExpert(0, 0.1))
    assert [each.expert for each in even.top(2)] == [0, 1]
    assert idle.top() == ()
    assert idle.total.hit_count.rate is None


def test_text_says_everything() -> None:
    text = format_stats(a_run())
    for words in (
        "tiny-moe.gguf",
        "90.0 % (180 of 200)",
        "20 of prompts, 5 decoded",
        "slots       in RAM, policy slru",
        "prompts     hits 90.0 % (72 of 80); 4 late; 4 loads, 3.9 KiB; stalled 0.080 s",
        "decode      hits 90.0 % (108 of 120); 6 late; 6 loads, 5.9 KiB; stalled 0.120 s;"
        " per token: 1.50 loads, 30.00 ms stalled",
        "195.3 KiB in all, 3 experts of them before they were needed",
        "60.0 % (30 of 50) before it, 100.0 % (150 of 150) after it",
        "both, off, in 3 of 4 steps; recall 75.0 %, precision 60.0 %",
        "40 experts, 20 used; 5 dropped, 1 failed",
        "7.8 KiB wasted",
        "--moe-capacity-factor 0.45 has room for full batches such as these 2;",
        "switched itself off",
        "2 (70 %) 1 (20 %) 0 (10 %); pinned 2",
    ):
        assert words in text
    assert "layer 3     no accesses\n" in text


def test_a_run_without_accesses() -> None:
    run = replace(
        a_run(), layers=(a_layer(0, (0,) * 4),), prediction=None, before_pin=None, after_pin=None
    )
    assert "hits        no accesses" in format_stats(run)
    assert from_json(to_json(run), "run") == run


def test_json_reads_back_and_spells_rates_out() -> None:
    run = a_run()
    assert from_json(to_json(run), "run") == run
    plain = to_dict(run)
    assert plain["hit_rate"] == 0.9
    assert plain["layers"][0]["top"][0] == {"expert": 2, "share": 0.7}
    assert plain["layers"][2]["hit_rate"] is None
    assert plain["prediction"]["recall"] == 0.75
    assert plain["after_pin"] == {"accesses": 150, "hits": 150, "hit_rate": 1.0}
    assert plain["decode"]["hit_rate"] == 0.9


@pytest.mark.parametrize("name", ["run.json", "run.JSON", "run.txt", "run"])
def test_either_kind_of_file_reads_back(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert save_stats(path, a_run()) is None
    assert read_stats(path) == a_run()
    assert path.read_text().startswith("{") == name.lower().endswith("json")
    assert os.listdir(tmp_path) == [name]


def test_an_old_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    path, link = tmp_path / "run.json", tmp_path / "link.json"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    assert save_stats(link, a_run()) is None
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert read_stats(path) == a_run()


def test_a_bad_path_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "none" / "run.txt", tmp_path / "file" / "run", tmp_path, Path("a\0b")):
        warning = save_stats(path, a_run())
        assert warning is not None
        assert warning.startswith(f"the expert stats were not written to {path} (")
        assert "\n" not in warning


def test_a_device_is_written_to() -> None:
    assert save_stats(Path("/dev/null"), a_run()) is None
    assert not Path("/dev/null").is_file()


def test_a_pipe_is_written_to_while_somebody_reads(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "no program reads from this pipe" in (save_stats(pipe, a_run()) or "")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert save_stats(pipe, a_run()) is None
    assert os.read(reader, 5) == b"model"
    os.close(reader)


def test_a_pipe_of_the_shell_is_written_to() -> None:
    reader, writer = os.pipe()
    assert save_stats(Path(f"/dev/fd/{writer}"), a_run()) is None
    assert os.read(reader, 5) == b"model"
    os.close(reader)
    os.close(writer)


def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert "No space left" in (save_stats(path, a_run()) or "")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["run.json"]


DAMAGE: list[Callable[[dict[str, Any]], object]] = [
    lambda plain: plain.pop("layers"),
    lambda plain: plain.update(layers=[5]),
    lambda plain: plain.update(num_tokens=-1),
    lambda plain: plain.update(num_tokens=True),
    lambda plain: plain.update(model=None),
    lambda plain: plain.update(prediction={}),
    lambda plain: plain.update(before_pin=[1, 2]),
    lambda plain: plain["layers"][0].update(uses=[1]),
    lambda plain: plain["layers"][0].update(uses=[1, 2, 3, 1 << 70]),
    lambda plain: plain["layers"][0].update(stall_seconds="long"),
    lambda plain: plain["layers"][0].update(stall_seconds=float("nan")),
    lambda plain: plain.update(hits=10**12),
    lambda plain: plain["layers"][1].update(loads=0),
    lambda plain: plain["layers"].pop(),
    lambda plain: plain["prediction"].update(recall=1.5),
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_stats_are_refused(damage: Callable[[dict[str, Any]], object]) -> None:
    plain = json.loads(to_json(a_run()))
    damage(plain)
    with pytest.raises(StatsFileError, match=r"run: damaged expert stats .*; record them anew"):
        from_json(json.dumps(plain), "run")


@pytest.mark.parametrize(
    "text", ["", "hello", "{}", "[]", "5", '{"format": "other"}', "[" * 100000]
)
def test_other_texts_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run"
    path.write_text(text)
    with pytest.raises(StatsFileError, match="holds no expert stats; --expert-stats PATH records"):
        read_stats(path)


def test_other_versions_and_unreadable_files(tmp_path: Path) -> None:
    plain = to_dict(a_run()) | {"version": 9}
    with pytest.raises(StatsFileError, match="version 9; this sharpi reads version 2"):
        from_json(json.dumps(plain), "run")
    with pytest.raises(StatsFileError, match="No such file"):
        read_stats(tmp_path / "none")
    with pytest.raises(StatsFileError, match="Is a directory"):
        read_stats(tmp_path)


def test_slots_below_those_of_a_gpu(tmp_path: Path) -> None:
    below = replace(a_run(), skew=None, notes=())
    run = replace(a_run(), tier="VRAM", below=below)
    assert from_json(to_json(run), "run") == run
    text = format_stats(run)
    assert text.index("slots       in VRAM") < text.index("slots       in RAM")
    assert text.count("layer 3     no accesses\n") == 2


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
    "before and after the warm pin are 201 and 180, in all 200 and 180": lambda run: replace(
        run, before_pin=HitCount(51, 30)
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
