"""The script runs a model over two ranks and says what each sent."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lazy_packages import needs

from sharpi.resources import demo_model

pytestmark = [needs("torch"), pytest.mark.native, pytest.mark.slow]
SCRIPT = Path(__file__).parents[2] / "bench-scripts" / "cluster" / "several_machines.py"


@pytest.mark.skipif(not SCRIPT.exists(), reason="it is part of a checkout")
def test_every_rank_reports_its_speed_and_its_messages(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    chosen = ["--cores", f"{cores[0]},{cores[-1]}", "--json", str(tmp_path / "result.json")]
    sizes = ["--prompt", "64", "--tokens", "4", "--sequences", "1,2", "--rounds", "1"]
    subprocess.run(
        [sys.executable, str(SCRIPT), str(demo_model()), *chosen, *sizes],
        check=True, timeout=300, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    result = json.loads((tmp_path / "result.json").read_text())
    assert [row["test"] for row in result["rows"]] == ["decode 1", "decode 2", "prompt 64"]
    assert all(min(row["one rank"], row["2 ranks"]) > 0 for row in result["rows"])
    first, second = result["ranks"]["0"], result["ranks"]["1"]
    assert second["num_received"] == second["steps"] + 1  # with the end
    assert first["sent_bytes"] == second["received_bytes"]
    assert second["num_sent"] > 20  # a message with outputs for every decoded token
    assert second["busy_seconds"] > 0
