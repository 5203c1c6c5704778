"""`sharpi bench`: its table, its JSON, its lists of tests, and requests it refuses."""

import json
from pathlib import Path

import pytest
from command_line import CommandLine

from sharpi.cli.commands import bench
from sharpi.engine.measure.benchmark import BenchmarkRow
from sharpi.ops.cpu import machine_limits
from sharpi.resources import native_library

pytestmark = pytest.mark.native
LIBRARY = native_library()  # before the environment is cleaned, which may name another build
MODEL = str(Path(__file__).parents[2] / "references" / "data" / "qwen3moe.gguf")
QUICK = ("bench", MODEL, "-p", "8", "-n", "2", "-r", "2", "-t", "1")


@pytest.fixture(autouse=True)
def short_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_limits, "BYTES_A_TRY", 1 << 22)
    monkeypatch.setattr(machine_limits, "SECONDS_A_TRY", 1e-3)


@pytest.fixture(autouse=True)
def built_library(clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARPI_NATIVE_LIBRARY", str(LIBRARY))


def test_table(sharpi: CommandLine) -> None:
    result = sharpi(*QUICK)
    assert (result.exit_code, result.err) == (0, "")
    head, prefill, decode, limits, settings = result.out.splitlines()
    assert head.split()[:3] == ["test", "threads", "tokens/s"]
    assert prefill.split()[:2] == ["pp8", "1"]
    assert decode.split()[:2] == ["tg2", "1"]
    assert "/batch" in prefill
    assert "/token" in decode
    assert limits.count("with 1 thread") == 2
    assert "activations" in settings


def test_steps_that_check_drafts(sharpi: CommandLine) -> None:
    result = sharpi(*QUICK, "--spec-type", "ngram", "--spec-draft-n-max", "2", "--json")
    rows = {row["test"]: row for row in json.loads(result.out)}
    assert list(rows) == ["pp8", "tg2", "ck1", "ck2", "ck3"]
    assert rows["ck3"]["tokens_per_pass"] == 3
    assert rows["ck1"]["tokens_per_second"] > 0
    # Two tokens read more experts than one, and no more than twice as many.
    one, two = (rows[name]["bytes_per_pass"] for name in ("ck1", "ck2"))
    assert one < two <= 2 * one


def test_the_table_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    row = BenchmarkRow(
        test="pp512 @ d32768",
        tokens_per_second=12345.678,
        deviation=987.654,
        gigabytes_per_second=512.34,
        percent_of_limit=100.0,
        percent_of_int8_peak=100.0,
        threads=128,
        num_tokens=512,
        depth=32768,
        tokens_per_pass=512.0,
        bytes_per_pass=1_073_000_000.0,
        read_limit_gigabytes_per_second=512.34,
        gigaoperations_per_second=99999.9,
        int8_peak_gigaoperations_per_second=99999.9,
        instruction_set="avx512_vbmi",
        precision="int16",
        batch_size=512,
        samples=(),
        device="NVIDIA H100 80GB HBM3",
        launches_per_token=321,
    )
    bench._print_table([row])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) == 80
    assert lines[1].split() == [
        *("pp512", "@", "d32768", "128", "12345.7", "±", "987.7"),
        *("1023.3", "MiB/batch", "512.34", "100.0", "%", "100.0", "%"),
    ]


def test_json(sharpi: CommandLine) -> None:
    rows = json.loads(sharpi(*QUICK, "--json").out)
    assert [row["test"] for row in rows] == ["pp8", "tg2"]
    for row in rows:
        assert row["tokens_per_second"] > 0
        assert row["deviation"] >= 0
        assert row["gigabytes_per_second"] > 0
        assert row["percent_of_limit"] > 0
        assert row["threads"] == 1
        assert len(row["samples"]) == 2


def test_lists(sharpi: CommandLine) -> None:
    result = sharpi(*QUICK[:2], "-p", "4,8", "-n", "0", "-d", "0,3", "-r", "1", "--json")
    names = [row["test"] for row in json.loads(result.out)]
    assert names == ["pp4", "pp8", "pp4 @ d3", "pp8 @ d3"]


def test_variables(sharpi: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"MODEL": MODEL, "N_PROMPT": "3", "N_GEN": "1", "N_DEPTH": "2", "REPETITIONS": "3"}
    for name, value in settings.items():
        monkeypatch.setenv(f"SHARPI_{name}", value)
    rows = json.loads(sharpi("bench", "--json").out)
    assert [(row["test"], len(row["samples"])) for row in rows] == [
        ("pp3 @ d2", 3),
        ("tg1 @ d2", 3),
    ]


@pytest.mark.parametrize(
    "arguments",
    [("-p", "x"), ("-p", "1,"), ("-n", "-1"), ("-d", "2.5"), ("-r", "0"), ("-p", "0", "-n", "0")],
)
def test_bad_requests(sharpi: CommandLine, arguments: tuple[str, ...]) -> None:
    result = sharpi("bench", MODEL, *arguments)
    assert (result.exit_code, result.out, result.err.count("\n")) == (2, "", 1)


def test_missing_model(sharpi: CommandLine, tmp_path: Path) -> None:
    result = sharpi("bench", str(tmp_path / "none.gguf"))
    assert (result.exit_code, result.out, result.err.count("\n")) == (1, "", 1)
