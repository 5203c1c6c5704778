"""`sharpi plan --hosts FILE`: a model divided among machines that are not there."""

import json
import re
from pathlib import Path

import pytest
from command_line import CommandLine

from sharpi.resources import demo_model, native_library

pytestmark = pytest.mark.native
LIBRARY = native_library()
TWO = """
[[host]]
name = "gpu-less"
ram = "64GiB"
read = "40GiB"

[[host]]
name = "old"
ram = "8GiB"
read = "10GiB"
hop_ms = 1
"""


@pytest.fixture(autouse=True)
def library(clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARPI_NATIVE_LIBRARY", str(LIBRARY))


def hosts_file(folder: Path, text: str) -> str:
    path = folder / "hosts.toml"
    path.write_text(text)
    return str(path)


def test_the_faster_machine_runs_more_layers(sharpi: CommandLine, tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path, TWO)
    result = sharpi("plan", str(demo_model()), "--hosts", hosts)
    assert (result.exit_code, result.err) == (0, "")
    assert max(map(len, result.out.splitlines()[2:])) <= 80
    assert "gpu-less" in result.out
    decided = json.loads(sharpi("plan", str(demo_model()), "--hosts", hosts, "--json").out)
    first, second = decided["ranks"]
    assert (first["first_layer"], second["end_layer"]) == (0, 6)
    assert first["end_layer"] == second["first_layer"] > 3
    hop = 0.0013
    seconds = first["seconds_per_token"] + second["seconds_per_token"] + hop
    assert decided["tokens_per_second"] == pytest.approx(1 / seconds)


def test_a_machine_with_vram_runs_more_layers(sharpi: CommandLine, tmp_path: Path) -> None:
    plain = TWO.replace("40GiB", "10GiB")
    with_vram = plain.replace('ram = "8GiB"', 'ram = "8GiB"\nvram = "2GiB"\nvram_read = "400GiB"')
    ends = []
    for text in (plain, with_vram):
        hosts = hosts_file(tmp_path, text)
        decided = json.loads(sharpi("plan", str(demo_model()), "--hosts", hosts, "--json").out)
        ends.append(decided["ranks"][0]["end_layer"])
    assert ends[1] < ends[0]
    out = sharpi("plan", str(demo_model()), "--hosts", hosts).out
    assert "8.0 GiB + 2.0 GiB VRAM" in out


def test_too_little_ram_is_said(sharpi: CommandLine, tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path, TWO.replace("64GiB", "1MiB").replace("8GiB", "1MiB"))
    result = sharpi("plan", str(demo_model()), "--hosts", hosts)
    assert result.exit_code == 1
    assert "of RAM: experts are read from disk" in result.out


SHORT = """
[[host]]
name = "short"
ram = "15MiB"
read = "10GiB"

[[host]]
name = "spare"
ram = "%s"
read = "10GiB"
only_lends = true
"""


def test_experts_that_another_machine_could_lend_are_counted(
    sharpi: CommandLine, tmp_path: Path
) -> None:
    hosts = hosts_file(tmp_path, SHORT % "1GiB")
    result = sharpi("plan", str(demo_model()), "--hosts", hosts)
    assert "none: it lends" in result.out
    wanted = (
        "rank 1 on spare has RAM for 96 of 96 experts in layers without a slot for each of rank"
    )
    assert f"{wanted} 0 on short" in " ".join(result.out.split())
    decided = json.loads(sharpi("plan", str(demo_model()), "--hosts", hosts, "--json").out)
    assert decided["loans"] == [f"{wanted} 0 on short"]
    assert [rank["num_bytes"] > 0 for rank in decided["ranks"]] == [True, False]


def test_little_ram_lends_few_and_enough_needs_none(sharpi: CommandLine, tmp_path: Path) -> None:
    few = hosts_file(tmp_path, SHORT % "14MiB")
    out = " ".join(sharpi("plan", str(demo_model()), "--hosts", few).out.split())
    found = re.search(r"RAM for (\d+) of 96 experts", out)
    assert found
    assert 0 < int(found[1]) < 96
    enough = hosts_file(tmp_path, (SHORT % "1GiB").replace("15MiB", "2GiB"))
    decided = json.loads(sharpi("plan", str(demo_model()), "--hosts", enough, "--json").out)
    assert decided["loans"] == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "missing required field `host`"),
        ("host = []", "it names no machine"),
        ("[[host]]\nname = 'a'\nram = '1GiB'", "missing required field `read`"),
        ("[[host]]\nname = 'a'\nram = 'much'\nread = '1GiB'", "much"),
        ("[[host]]\nname = 'a'\nram = '1GiB'\nread = '0'", "above 0"),
        ("[[host", "--hosts"),
        (SHORT.replace('"10GiB"', '"10GiB"\nonly_lends = true', 1) % "1GiB", "only lends"),
    ],
)
def test_bad_files_are_one_line(
    sharpi: CommandLine, tmp_path: Path, text: str, reason: str
) -> None:
    result = sharpi("plan", str(demo_model()), "--hosts", hosts_file(tmp_path, text))
    assert result.exit_code == 2
    assert reason in result.err
    assert result.err.count("\n") == 1
