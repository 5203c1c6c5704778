"""Files that a run writes at its end are checked before it begins."""

import os
from pathlib import Path

import pytest
from command_line import CommandLine
from fake_engine import FakeEngine

FLAGS = ("--expert-stats", "--moe-trace", "--moe-profile")


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("command", ["run", "chat", "bench", "perplexity", "logits"])
def test_a_folder_that_is_missing_is_found_first(
    sharpi: CommandLine, engine: FakeEngine, flag: str, command: str, tmp_path: Path
) -> None:
    path = tmp_path / "nope" / "x"
    result = sharpi(*_whole(command, tmp_path), flag, str(path))
    assert (result.exit_code, result.out, result.err.count("\n")) == (2, "", 1)
    assert f"{flag}: cannot write {path} (there is no folder {path.parent})" in result.err
    assert engine.config is None


def _whole(command: str, folder: Path) -> list[str]:
    (folder / "ids.npy").write_bytes(b"")
    needed = {
        "run": ["hi"],
        "perplexity": ["--file", "t"],
        "logits": ["--tokens", _ids(folder), "--output", str(folder / "o.npy")],
    }
    return [command, "m.gguf", *needed.get(command, [])]


def _ids(folder: Path) -> str:
    import numpy as np

    np.save(folder / "ids.npy", np.array([1, 2]))
    return str(folder / "ids.npy")


@pytest.mark.parametrize("flag", FLAGS)
def test_a_folder_or_a_name_that_is_too_long(
    sharpi: CommandLine, engine: FakeEngine, flag: str, tmp_path: Path
) -> None:
    assert "it is a folder" in sharpi("run", "m.gguf", "hi", flag, str(tmp_path)).err
    assert "too long" in sharpi("run", "m.gguf", "hi", flag, str(tmp_path / ("x" * 300))).err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_of_others(sharpi: CommandLine, engine: FakeEngine, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    result = sharpi("run", "m.gguf", "hi", "--expert-stats", str(tmp_path / "x"))
    assert "permission denied" in result.err


def test_devices_and_new_files_are_fine(
    sharpi: CommandLine, engine: FakeEngine, tmp_path: Path
) -> None:
    for path in ("/dev/null", str(tmp_path / "new.txt")):
        assert sharpi("run", "m.gguf", "hi", "--expert-stats", path).exit_code == 0
