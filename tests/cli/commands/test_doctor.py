"""`sharpi doctor`: what it prints of this machine, and its advice for others as a table."""

import json
import sys
from pathlib import Path

import pytest
from command_line import CommandLine
from msgspec.structs import replace

from sharpi.cli.commands.doctor import advise
from sharpi.engine import first_light
from sharpi.hardware import rates as hardware_rates
from sharpi.hardware.info import Gpu, GpuDriver
from sharpi.hardware.memory import MemoryInfo
from sharpi.hardware.report import DiskReport, HardwareReport
from sharpi.resources import native_library
from sharpi.settings import FEATURES

LIBRARY = native_library()  # before the environment is cleaned, which may name another build
GPU = GpuDriver("580.1", "13.0", (Gpu("GPU", 24 << 30, 20 << 30, "9.0"),))
PACKAGES = (
    *("torch", "cupy", "starlette", "uvicorn", "prometheus-client", "huggingface_hub"),
    *("llguidance", "matplotlib"),
)
HEALTHY = HardwareReport(
    physical_cores=8,
    logical_cores=16,
    instruction_sets=("avx2", "portable"),
    better_instruction_sets={},
    kernels_fault=None,
    memory=MemoryInfo(total=16 << 30, free=8 << 30),
    page_size=4096,
    transparent_huge_pages="madvise",
    ram_read_bytes_per_second=40e9,
    disk=DiskReport("/data", 1 << 40, 3e9, True, None),
    has_gpu=True,
    gpu_driver=GPU,
    packages=dict.fromkeys(PACKAGES, "1.0"),
)

OLDER = replace(GPU, cuda_version="12.4")
NO_TORCH = {**HEALTHY.packages, "torch": None}


@pytest.fixture(autouse=True)
def quick(clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The built library, and trials too small to wait for."""
    monkeypatch.setenv("SHARPI_NATIVE_LIBRARY", str(LIBRARY))
    monkeypatch.setattr(hardware_rates, "TRIAL_BYTES", 1 << 20)
    monkeypatch.setattr(hardware_rates, "SAMPLE_BYTES", 1 << 20)
    monkeypatch.setattr("sharpi.hardware.report.measure_ram_read", lambda num_threads: 20e9)


def test_nothing_is_missing_on_a_healthy_machine() -> None:
    assert list(advise(HEALTHY)) == []


def test_lists_what_can_be_switched_off(sharpi: CommandLine, tmp_path: Path) -> None:
    out = sharpi("doctor", str(tmp_path)).out
    for name, effect in FEATURES.items():
        assert f"--disable {name}: {effect}" in out
    assert json.loads(sharpi("doctor", str(tmp_path), "--json").out)["features"] == FEATURES


@pytest.mark.parametrize(
    ("change", "missing", "command"),
    [
        ({"kernels_fault": "broken"}, "CPU kernels", "make run"),
        ({"gpu_driver": None}, "NVIDIA driver", "driver"),
        ({"gpu_driver": None, "has_gpu": False}, "NVIDIA GPU", "sharpi plan MODEL --vram"),
        ({"packages": {**HEALTHY.packages, "cupy": None}}, "cupy", "pip install -e '.[cuda13]'"),
        ({"packages": NO_TORCH, "gpu_driver": OLDER}, "torch", "pip install -e '.[cuda12]'"),
        ({"packages": {**HEALTHY.packages, "matplotlib": None}}, "matplotlib", "pip install"),
        ({"transparent_huge_pages": "never"}, "huge pages", "transparent_hugepage"),
        ({"disk": replace(HEALTHY.disk, is_direct=False)}, "direct reads on /data", "ext4"),
        ({"disk": DiskReport("/x", 0, None, None, "no")}, "disk rate", "sharpi doctor"),
    ],
)
def test_advice(change: dict[str, object], missing: str, command: str) -> None:
    (advice,) = advise(replace(HEALTHY, **change))  # type: ignore[arg-type]
    assert advice.missing == missing
    assert command in advice.command
    assert "\n" not in str(advice)


def test_torch_only_makes_prompts_faster() -> None:
    (advice,) = advise(replace(HEALTHY, packages=NO_TORCH))
    assert advice.needed_for == "faster prompts on a GPU"


@pytest.mark.native
def test_for_people(sharpi: CommandLine, tmp_path: Path) -> None:
    result = sharpi("doctor", str(tmp_path))
    assert (result.exit_code, result.err) == (0, "")
    headings = {line[:15].strip() for line in result.out.splitlines()}
    assert {"cores", "kernels", "RAM", "pages", "disk", "packages"} <= headings
    assert "GB/s" in result.out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.native
def test_the_kernels_in_use_and_what_better_ones_need(
    sharpi: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    better = {"avx512_vbmi": ["avx512f", "gfni"], "avx512_vnni": ["avx512f"]}
    monkeypatch.setattr("sharpi.hardware.report.INSTRUCTION_SETS", ("avx2", "portable"))
    monkeypatch.setattr("sharpi.hardware.report._runs", lambda name: True)
    monkeypatch.setattr("sharpi.hardware.report.better_instruction_sets", lambda: better)
    out = sharpi("doctor", str(tmp_path)).out
    assert "kernels        avx2 in use; portable run here too\n" in out
    assert f"{'':15}avx512_vbmi needs what this processor lacks: avx512f, gfni\n" in out
    assert f"{'':15}avx512_vnni needs what this processor lacks: avx512f\n" in out


@pytest.mark.native
def test_json(sharpi: CommandLine, tmp_path: Path) -> None:
    record = json.loads(sharpi("doctor", str(tmp_path), "--json").out)
    assert "portable" in record["instruction_sets"]
    assert 0 < record["memory"]["free"] <= record["memory"]["total"]
    assert record["disk"]["bytes_per_second"] > 0
    assert set(record["packages"]) == set(PACKAGES)
    assert all(set(each) == {"missing", "needed_for", "command"} for each in record["missing"])


def test_without_kernels_the_rest_is_shown(
    sharpi: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fault = "the native library is missing"
    monkeypatch.setattr("sharpi.hardware.report._kernels_fault", lambda: fault)
    result = sharpi("doctor", str(tmp_path))
    assert result.exit_code == 0
    assert f"kernels        {fault}" in result.out
    assert "missing        CPU kernels, needed for running any model" in result.out


def test_a_gpu_and_its_driver(
    sharpi: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sharpi.hardware.report.probe_gpus", lambda: GPU)
    out = sharpi("doctor", str(tmp_path)).out
    assert "GPU driver     580.1, up to CUDA 13.0" in out
    assert "GPU, compute capability 9.0, 20.0 GiB free of 24.0 GiB" in out


def test_a_path_that_is_not_there(sharpi: CommandLine, tmp_path: Path) -> None:
    result = sharpi("doctor", str(tmp_path / "none"))
    assert (result.exit_code, result.out, result.err.count("\n")) == (2, "", 1)


def test_doctor_says_what_to_do(sharpi: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    command = (
        sys.executable,
        "-c",
        "import sys; sys.exit('no GPU' if 'graph' in sys.argv[1] else 0)",
    )
    monkeypatch.setattr(first_light, "COMMAND", command)
    result = sharpi("doctor", "--gpu")
    assert result.exit_code == 1
    assert len(result.out.splitlines()) >= len(first_light.RUNGS)
    assert "a graph failed (no GPU); try --disable graphs" in result.err
