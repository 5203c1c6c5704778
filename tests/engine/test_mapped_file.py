"""A model's file that is cut short while a command runs it from the mapped file."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from sharpi.engine.loader import load_engine
from sharpi.engine.mapped_file import MappedFile
from sharpi.errors import ModelFileError, SharpiError, UsageError
from sharpi.resources import demo_model
from sharpi.settings import RunConfig

pytestmark = pytest.mark.native


def test_a_file_that_is_cut_short_ends_a_run_in_one_line(tmp_path: Path) -> None:
    model, stats = tmp_path / "own.gguf", tmp_path / "stats.json"
    shutil.copy(demo_model(), model)
    options = ("-p", "Once", "-n", "200000", "--ignore-eos", "--context-shift", "--no-log")
    program = subprocess.Popen(
        [sys.executable, "-m", "sharpi", "run", str(model), *options, "--expert-stats", str(stats)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert len(program.stdout.read(40)) == 40
    os.truncate(model, 100_000)
    _, err = program.communicate(timeout=60)
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert program.returncode == 1, err
    assert len(errors) == 1
    assert "cut short" in errors[0]
    assert json.loads(stats.read_text("utf-8"))["num_tokens"] > 0


@pytest.mark.parametrize("fails", ["while it loads", "in its reads"])
def test_a_load_that_fails_forgets_the_file(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a guard would stay on addresses that may come to hold something else."""
    closed: list[MappedFile] = []
    close = MappedFile.close

    def counted(self: MappedFile) -> None:
        closed.append(self)
        close(self)

    monkeypatch.setattr(MappedFile, "close", counted)
    config = RunConfig(demo_model(), context_size=64)
    error: type[SharpiError] = ModelFileError
    if fails == "while it loads":
        (tmp_path / "file").touch()
        config, error = replace(config, prompt_cache=tmp_path / "file"), UsageError
    else:
        monkeypatch.setattr(MappedFile, "is_readable", False)
    with pytest.raises(error):
        load_engine(config)
    assert len(closed) == 1
