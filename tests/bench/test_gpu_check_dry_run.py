"""The check's programs with the kernels emulated on the CPU; only speed needs a GPU."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gpu import kernels, models
from gpu.cases import Sizes
from gpu.check_step import ROOT, Findings
from gpu.engines import Engines, device_opener, error, typical_error
from gpu.facts import look_at_packages
from gpu.kernels import Plan, all_types, measure
from gpu.models import check_graph, check_references, check_types

from sharpi.device.device import Device
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.gpu_limits import GPU_TYPES

pytestmark = pytest.mark.native
TINY = Sizes(
    hidden=256,
    expert_hidden=256,
    experts=4,
    used=2,
    heads=4,
    kv_heads=2,
    head_dim=64,
    output_rows=33,
    contexts=(70,),
    batches=(1, 3),
    arena_bytes=1 << 15,
    max_kv_layers=2,
)


@pytest.fixture(scope="module")
def device() -> Device:
    return device_opener(is_dry=True)()


def options(only: str) -> argparse.Namespace:
    return argparse.Namespace(only=only, dry_run=True, folder=None)


@pytest.mark.slow
def test_every_kernel_gets_a_line(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan(TINY, (QuantType.Q4_K,), launches=2, tries=1, seconds=100)
    report = measure(device, plan)
    rows = report["rows"]
    assert isinstance(rows, list)
    kinds = {(row["kernel"], row["quant_type"]) for row in rows}
    assert {("experts gate_up", "Q4_K"), ("experts down", "Q4_K"), ("matvec", "Q4_K")} <= kinds
    assert {("attention", "f16"), ("attention", "q8_0"), ("matvec", "F32")} <= kinds
    assert {row["tokens"] for row in rows} == {1, 3}
    gate_up = next(row for row in rows if row["kernel"] == "experts gate_up")
    assert gate_up["num_bytes"] == 2 * 2 * 256 * 144
    assert gate_up["percent_without_start"] >= gate_up["percent"] > 0
    assert len(capsys.readouterr().out.splitlines()) == len(rows) + 2


def test_the_kernels_findings_are_those_of_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kernels.json"
    arguments = ["gpu/kernels.py", "--dry-run", "--types", "Q4_K", "--json", str(path)]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as ended:
        kernels.main()
    assert ended.value.code == 0
    figures = Findings(**json.loads(path.read_text())).figures
    assert figures["read_gigabytes_per_second"] > 0
    assert len(figures["rows"]) > 10


def test_types_without_time_are_named(device: Device) -> None:
    report = measure(device, Plan(TINY, (QuantType.Q4_K,), launches=1, tries=1, seconds=0))
    assert report["left_out"] == ["Q4_K"]


def test_the_usual_types_come_first() -> None:
    assert [t.name for t in all_types()[:2]] == ["Q4_K", "Q6_K"]
    assert set(all_types()) == GPU_TYPES


@pytest.mark.slow
def test_models_against_the_cpu(device: Device) -> None:
    engines, findings = Engines(lambda _: device), Findings()
    check_references(engines, findings, options("qwen3moe"))
    check_types(engines, findings, options("Q4_K"))
    assert findings.failures == []
    assert set(findings.figures["qwen3moe"]) == {
        "f32 prefill", "f32 decode", "transformers", "int8 prefill", "int8 decode",
    }  # fmt: skip
    assert len(findings.figures["Q4_K"]) == 6


def test_errors_are_found(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    engines, findings = Engines(lambda _: device), Findings()
    monkeypatch.setattr(models, "error", lambda *logits: error(*logits) + 1)
    monkeypatch.setattr(models, "typical_error", lambda *logits: error(*logits) + 1)
    check_references(engines, findings, options("qwen3moe"))
    assert len(findings.failures) == 5
    assert findings.failures[0] == "qwen3moe: f32 prefill is off by 1.0e+00, more than 1e-03"
    monkeypatch.setattr(models, "error", lambda *logits: 1 / 0)
    check_references(engines, findings, options("llama"))
    assert findings.failures[-1].startswith("llama: ZeroDivisionError")


def test_a_typical_error_is_that_of_most_tokens() -> None:
    reference = np.ones((3, 4), np.float32)
    logits = reference * np.array([[1.01], [1.02], [5.0]], np.float32)
    assert typical_error(logits, reference) == pytest.approx(0.02, rel=1e-3)
    assert error(logits, reference) > 1
    logits[0, 0] = np.nan
    assert typical_error(logits, reference) == error(logits, reference) == float("inf")


def test_graphs(device: Device) -> None:
    findings = Findings()
    check_graph(Engines(lambda _: device), findings, options("qwen3moe"))
    assert findings.failures == []
    assert findings.figures["qwen3moe"] == {"captured": 1, "replayed": 2}


def test_missing_packages_are_one_line() -> None:
    findings = Findings()
    look_at_packages(findings, ("numpy", "no_such_package", "neither_this"))
    assert "numpy" in findings.figures["packages"]
    (line,) = findings.failures
    assert line.startswith("missing: no_such_package, neither_this; put their wheels")
    assert " no_such_package neither_this`)" in line


@pytest.mark.slow
def test_the_whole_command(tmp_path: Path) -> None:
    """The synthetic models decode with all and with some of their experts in VRAM."""
    command = [
        *("bash", str(ROOT / "bench-scripts" / "gpu_check.sh"), "--dry-run"),
        *("--output", str(tmp_path), "--folder", str(tmp_path / "work")),
        *("--only", "packages,synthetic,resident,again,skewed,residency,llama_cpp"),
    ]
    environment = os.environ | {"PYTHON": sys.executable}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split()[0] for line in done.stdout.splitlines()]
    assert lines == ["passed"] * 6 + ["skipped", "report:"]
    data = json.loads((tmp_path / "gpu-check-dry-run.json").read_text())
    found = {step["name"]: step["findings"]["figures"] for step in data["steps"]}
    assert found["resident"]["tokens"] == found["again"]["tokens"]
    assert found["resident"]["vram_slots"] == [8, 8]
    assert "rows" not in found["again"]
    loads = {load["percent"]: load for load in found["residency"]["loads"]}
    assert set(loads) == {25, 100, None}
    assert loads[25]["slots"] == [2, 2]
    modes = [row["mode"] for row in loads[25]["decode"]]
    assert modes == ["bus", "cpu", "bus without a graph", "auto"]
    assert all(row["must_cross_bytes"] > 0 for row in loads[25]["prefill"])
    assert loads[None]["decode"][0]["hit_rate"] == 0
    assert len(data["aims"]) >= 4
    text = (tmp_path / "gpu-check-dry-run.md").read_text()
    assert "| 25 % | 2 | bus |" in text
    assert str(tmp_path) not in text + json.dumps(data)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "gpu-check-dry-run-logs.tar.gz", "gpu-check-dry-run.json", "gpu-check-dry-run.md",
    ]  # fmt: skip
