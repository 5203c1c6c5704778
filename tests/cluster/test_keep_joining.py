"""`sharpi join` waits where waiting may help, and ends where it cannot."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from machines import PROMPT, ROOT, Machines, ended

from sharpi.resources import demo_model

pytestmark = pytest.mark.native


def join(*arguments: str, path: str = "", first: str = "127.0.0.1") -> tuple[int, str]:
    """Runs `sharpi join`; Python finds modules in `path` before others."""
    done = subprocess.run(
        [sys.executable, "-m", "sharpi", "join", first, *arguments],
        env=os.environ | ({"PYTHONPATH": path} if path else {}),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stderr


@pytest.mark.slow
def test_a_machine_without_torch_is_told_so_once(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('none here')\n")
    code, err = join(str(demo_model()), path=str(tmp_path))
    assert (code, err.split("\n")[1:]) == (1, [""])
    assert "several machines need torch" in err


@pytest.mark.slow
def test_a_missing_file_and_a_missing_interface_end_it(machines: Machines, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    for arguments, named in (
        ((str(tmp_path / "none.gguf"),), "none.gguf: no such file"),
        ((str(machines.model), "--link", "nope0"), "nope0"),
    ):
        code, _, err = ended(machines.start("join", machines.first, *arguments))
        assert (code, err.split("\n")[1:]) == (1, [""])
        assert named in err


def test_a_first_machine_whose_name_no_server_knows_ends_it() -> None:
    code, err = join(str(demo_model()), first="no-such-machine.invalid")
    if "cannot be reached" in err:
        pytest.skip("no name server answers here")
    assert (code, err.split("\n")[1:]) == (1, [""])
    assert "no-such-machine.invalid: no machine has this name" in err


@pytest.mark.slow
def test_it_waits_for_the_next_model(machines: Machines) -> None:
    pytest.importorskip("torch")
    joined = machines.start("join", machines.first, str(machines.model))
    for _ in range(2):
        code, _, err = ended(machines.run(*PROMPT, "-n", "8"))
        assert code == 0, err
    time.sleep(0.1)
    assert joined.poll() is None
