"""`sharpi bench` on a GPU: its limits, its fields, and its lines about two processors."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sharpi.device.device import Device
from sharpi.engine.loader import load_engine
from sharpi.engine.measure.benchmark import BenchmarkRow, BenchmarkTest, run_benchmark
from sharpi.ops.cpu import machine_limits
from sharpi.ops.cuda import gpu_limits as gpu_limits
from sharpi.settings import RunConfig

pytestmark = pytest.mark.native
MODEL = Path(__file__).parents[2] / "references" / "data" / "qwen3moe.gguf"
Measure = Callable[..., list[BenchmarkRow]]


@pytest.fixture
def print_table() -> Callable[[list[BenchmarkRow]], None]:
    """Prints as the command does; gpu_check.sh runs these tests without the CLI's packages."""
    pytest.importorskip("typer")
    from sharpi.cli.commands import bench

    return bench._print_table


@pytest.fixture(autouse=True)
def short_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_limits, "BYTES_A_TRY", 1 << 20)
    monkeypatch.setattr(machine_limits, "SECONDS_A_TRY", 1e-3)
    monkeypatch.setattr(gpu_limits, "BYTES_A_TRY", 1 << 17)
    monkeypatch.setattr(gpu_limits, "READS_OF_A_TRY", 2)
    monkeypatch.setattr(gpu_limits, "BUS_BYTES_A_TRY", 1 << 16)
    monkeypatch.setattr(gpu_limits, "TRIES", 1)


@pytest.fixture
def measure(device: Device) -> Measure:
    """Rows of a prefill and a decode; RunConfig's fields are keywords."""

    def run(**options: Any) -> list[BenchmarkRow]:
        config = replace(RunConfig(model=MODEL, device="cuda", context_size=64), **options)
        with load_engine(config, open_device=lambda _: device) as engine:
            tests = [BenchmarkTest("pp", 3), BenchmarkTest("tg", 2)]
            return list(run_benchmark(engine, tests, 1))

    return run


def test_a_gpu_is_held_against_its_own_rate(device: Device, measure: Measure) -> None:
    prefill, decode = measure()
    assert decode.device == device.name
    assert (decode.instruction_set, decode.threads) == (None, None)
    assert decode.launches_per_token == 18  # six in each of two layers, and six around them
    assert prefill.launches_per_token is None
    for row in (prefill, decode):
        assert row.read_limit_gigabytes_per_second is not None
        limit = row.read_limit_gigabytes_per_second
        assert row.percent_of_limit == pytest.approx(100 * row.gigabytes_per_second / limit)
        assert json.loads(json.dumps(row.record()))["device"] == device.name


def test_slots_bring_in_the_bus(measure: Measure) -> None:
    (_, decode) = measure(moe_slots=2)
    assert decode.percent_of_limit is not None
    assert decode.percent_of_limit > 0


def test_two_processors_have_no_limit_in_common(
    measure: Measure,
    print_table: Callable[[list[BenchmarkRow]], None],
    capsys: pytest.CaptureFixture[str],
    device: Device,
) -> None:
    rows = measure(gpu_layers=1, num_threads=1)
    for row in rows:
        assert row.percent_of_limit is row.read_limit_gigabytes_per_second is None
        assert row.device == device.name
        assert None not in (row.instruction_set, row.threads)
    print_table(rows)
    text = " ".join(capsys.readouterr().out.split())  # lines are wrapped
    assert f"limits: none where layers are on both processors {rows[-1].instruction_set}" in text
    assert f"and {device.name}, " in text
    assert text.endswith(" kernels per token on the GPU")


def test_the_table_of_a_gpu(
    measure: Measure,
    print_table: Callable[[list[BenchmarkRow]], None],
    capsys: pytest.CaptureFixture[str],
    device: Device,
) -> None:
    print_table(measure())
    rows, below = capsys.readouterr().out.split("limits: ")
    assert rows.endswith(" %\n")
    assert f"GB/s reading on the GPU {device.name}, " in " ".join(below.split())
