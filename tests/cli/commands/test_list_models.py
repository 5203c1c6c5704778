"""`sharpi models`: the list; and short names, which are fetched after a question or with --pull."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import CommandLine
from fake_engine import FakeEngine
from stand_in import StandIn

from sharpi.cli import model_path as missing_model
from sharpi.hardware import rates as hardware_rates
from sharpi.resources import demo_model, native_library

LIBRARY = native_library()
REPOSITORY, FILE = "Qwen/Qwen3-30B-A3B-GGUF", "Qwen3-30B-A3B-Q4_K_M.gguf"


@pytest.fixture(autouse=True)
def quick(clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARPI_NATIVE_LIBRARY", str(LIBRARY))
    monkeypatch.setattr(hardware_rates, "measure_ram_read", lambda num_threads: 20e9)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "hub"


@pytest.fixture
def hub(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    from huggingface_hub import constants

    with StandIn() as running:
        running.add(REPOSITORY, {FILE: demo_model().read_bytes(), "x-Q8_0.gguf": b"other"})
        monkeypatch.setattr(constants, "ENDPOINT", running.endpoint)
        monkeypatch.setattr(
            constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            running.endpoint + "/{repo_id}/resolve/{revision}/{filename}",
        )
        yield running


@pytest.mark.native
class TestList:
    def test_table(self, sharpi: CommandLine) -> None:
        result = sharpi("models", "qwen3:30b")
        assert (result.exit_code, result.err) == (0, "")
        heading, row, _, *notes = result.out.splitlines()
        assert heading.split()[:9] == [
            *("name", "total", "active", "quant", "file", "RAM", "least", "tokens/s", "from")
        ]
        assert row.split()[:5] == ["qwen3:30b", "30.5B", "3.3B", "Q4_K_M", "~17.2G"]
        assert "Q6_K ~23.4G, Q8_0 ~30.2G" in row
        assert row.endswith(REPOSITORY)
        assert "approximate" in notes[0]

    def test_all(self, sharpi: CommandLine) -> None:
        lines = sharpi("models").out.splitlines()
        assert len([line for line in lines if ":" in line.split("  ")[0]]) >= 16

    def test_json(self, sharpi: CommandLine) -> None:
        (record,) = json.loads(sharpi("models", "qwen3:30b", "--json").out)
        assert (record["name"], record["repository"]) == ("qwen3:30b", REPOSITORY)
        assert record["approximate_least_ram_bytes"] < record["approximate_ram_bytes"]
        assert record["fits_here"] == (record["tokens_per_second_here"] is not None)

    def test_none(self, sharpi: CommandLine) -> None:
        result = sharpi("models", "llama9")
        assert (result.exit_code, result.out, result.err.count("\n")) == (2, "", 1)
        assert "no model of the list has 'llama9' in its name" in result.err


class TestShortNames:
    def test_without_a_terminal_the_pull_line_is_shown(
        self, sharpi: CommandLine, engine: FakeEngine, cache: Path
    ) -> None:
        result = sharpi("run", "qwen3:30b", "hi")
        assert (result.exit_code, engine.config) == (1, None)
        assert result.err == (
            f"error: {REPOSITORY}:Q4_K_M is not in the cache;"
            f" type `sharpi pull {REPOSITORY}:Q4_K_M`\n"
        )

    def test_pull_does_not_ask(
        self, sharpi: CommandLine, engine: FakeEngine, hub: StandIn, cache: Path
    ) -> None:
        result = sharpi("run", "qwen3:30b", "hi", "--pull")
        assert (result.exit_code, result.out) == (0, "Paris it is.\n")
        assert engine.config.model.name == FILE
        assert f"{FILE} is complete, checksum verified" in result.err
        assert sharpi("run", "qwen3:30b", "hi").exit_code == 0  # it is there now

    @pytest.mark.parametrize(("answer", "is_fetched"), [("y\n", True), ("\n", False), ("", False)])
    def test_a_terminal_is_asked(
        self,
        sharpi: CommandLine,
        engine: FakeEngine,
        hub: StandIn,
        monkeypatch: pytest.MonkeyPatch,
        answer: str,
        is_fetched: bool,
    ) -> None:
        monkeypatch.setattr(missing_model, "stdin_is_terminal", lambda: True)
        monkeypatch.setattr("sharpi.cli.inputs.stdin_is_terminal", lambda: True)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        result = sharpi("run", "qwen3:30b", "hi", stdin=answer)
        assert f"{REPOSITORY}:Q4_K_M is not in the cache. Fetch it" in result.err
        assert (result.exit_code == 0, engine.config is not None) == (is_fetched, is_fetched)

    def test_pull_takes_a_short_name_with_a_quant(
        self, sharpi: CommandLine, hub: StandIn, cache: Path
    ) -> None:
        result = sharpi("pull", "qwen3:30b:Q8_0")
        assert result.exit_code == 0
        assert f"now `sharpi run {REPOSITORY}:Q8_0`" in result.err

    def test_rm_takes_a_short_name(self, sharpi: CommandLine, hub: StandIn, cache: Path) -> None:
        assert sharpi("pull", "qwen3:30b").exit_code == 0
        assert sharpi("rm", "qwen3:30b", "-y").exit_code == 0
        assert REPOSITORY not in sharpi("list").out

    def test_a_family_alone_is_refused_with_its_names(
        self, sharpi: CommandLine, engine: FakeEngine, cache: Path
    ) -> None:
        result = sharpi("run", "qwen3", "hi")
        assert (result.exit_code, engine.config) == (2, None)
        assert "did you mean qwen3:" in result.err
