"""First light on the emulated GPU: what passes, and what is said about a rung that does not."""

import json
import sys
from pathlib import Path

import pytest
from gpu.engines import device_opener
from gpu.first_light import main

from sharpi.engine import first_light
from sharpi.engine.first_light import RUNGS, climb, run_rung

pytestmark = pytest.mark.native
QUICK = ("a kernel", "an early launch in a graph", "words in a graph", "page-locked RAM", "torch")


@pytest.mark.slow
def test_rungs_pass_on_the_emulated_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(first_light, "_LOCKED_BYTES", 1 << 20)
    monkeypatch.setattr(first_light, "_NUM_TOKENS", 3)
    for name in (*QUICK, "a model with folding alone"):
        assert run_rung(name, device_opener(True)) == 0
    *_, library, model = capsys.readouterr().out.splitlines()
    assert library == "torch multiplies and attends"
    assert "away from the CPU's logits" in model


def test_a_rung_that_fails_says_why_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    device = device_opener(True)(0)
    device.library_fault = "torch is missing"  # type: ignore[misc]
    assert run_rung("torch", lambda _: device) == 1
    assert capsys.readouterr().err == "torch is missing\n"


def test_a_process_for_each_rung() -> None:
    """One that hangs is ended, and the others still run; without the first there are none."""
    code = "import sys, time; sys.argv[1] == 'a graph' and time.sleep(60); sys.exit('x' in {})"
    command = [sys.executable, "-c", code.format("sys.argv[1]")]
    first, second, third = climb(command, RUNGS[:3], seconds=2)
    assert [first.is_passed, second.is_passed, third.is_passed] == [True, False, True]
    assert second.text == "did not end within 2 s"
    assert second.advice == "--disable graphs"
    (only,) = climb([sys.executable, "-c", "raise OSError('no driver')"])
    assert (only.is_passed, only.text) == (False, "OSError: no driver")


def test_the_script_writes_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.json"
    monkeypatch.setattr(sys, "argv", ["first_light", str(out), "--dry", "--only", "a kernel"])
    assert main() == 0
    (found,) = json.loads(out.read_text()).values()
    assert found["ok"]
