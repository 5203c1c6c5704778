"""`sharpi stats`: tables, heat map, JSON, a picture, and files it refuses."""

import json
import sys
from pathlib import Path

import pytest
from command_line import CommandLine

sys.path.insert(0, str(Path(__file__).parents[2] / "experts"))
from expert_runs import a_run

from sharpi.experts.stats.stats_file import save_stats


@pytest.fixture(params=["run.txt", "run.json"])
def recorded(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    path = tmp_path / request.param
    assert save_stats(path, a_run()) is None
    return str(path)


def test_tables_and_heat_map(sharpi: CommandLine, recorded: str) -> None:
    result = sharpi("stats", recorded)
    assert (result.exit_code, result.err) == (0, "")
    lines = [line.rstrip() for line in result.out.splitlines()]
    assert "hits        90.0 % (180 of 200)" in lines
    assert any(line.startswith("    0      2       100  90.0 %") for line in lines)
    assert "    3      2      none" in lines
    heat = lines[lines.index(next(line for line in lines if line.startswith("uses: "))) :]
    assert "a column is an expert" in heat[0]
    assert heat[1:] == ["     0 .:#", "     2 ----", "     3 no accesses"]


def test_colours_in_a_terminal(
    sharpi: CommandLine, recorded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[48;5;" in sharpi("stats", recorded).out


def test_json(sharpi: CommandLine, recorded: str) -> None:
    result = sharpi("stats", recorded, "--json")
    assert (result.exit_code, result.err) == (0, "")
    plain = json.loads(result.out)
    assert plain["hit_rate"] == 0.9
    assert plain["layers"][1]["uses"] == [25] * 4


@pytest.mark.slow
def test_a_picture(sharpi: CommandLine, recorded: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = sharpi("stats", recorded, "--png", str(tmp_path / "out.png"))
    assert (result.exit_code, result.err) == (0, "")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_without_matplotlib(
    sharpi: CommandLine, recorded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = sharpi("stats", recorded, "--png", "out.png")
    assert (result.exit_code, result.err.count("\n")) == (2, 1)
    assert "pip install matplotlib" in result.err


@pytest.mark.parametrize("content", [None, "nothing of the kind", '{"format": "x"}'])
def test_refused(sharpi: CommandLine, tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_text(content)
    result = sharpi("stats", str(path))
    assert (result.exit_code, result.out, result.err.count("\n")) == (1, "", 1)
    assert str(path) in result.err
