"""The program as a whole: help, version, start-up cost, and how failures are reported."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer.core
from command_line import CommandLine
from fake_engine import FakeEngine

from sharpi import __version__
from sharpi.errors import SharpiError

ROOT = Path(__file__).parents[2]
COMMANDS = (
    "run",
    "chat",
    "serve",
    "ps",
    "tokenize",
    "inspect",
    "plan",
    "doctor",
    "logits",
    "perplexity",
    "bench",
)
HEAVY = (
    *("torch", "cupy", "numpy", "gguf", "tokenizers", "jinja2", "rich", "huggingface_hub"),
    *("starlette", "uvicorn", "prometheus_client", "llguidance"),
)


def python(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_version(sharpi: CommandLine) -> None:
    result = sharpi("--version")
    assert (result.exit_code, result.err) == (0, "")
    version, kernels = result.out.splitlines()
    assert version == f"sharpi {__version__}"
    assert kernels.startswith("CPU kernels: ")


@pytest.mark.native
def test_version_names_the_kernels_and_why_they_are_not_better(
    sharpi: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    better = {"avx512_vbmi": ["avx512f", "gfni"], "avx512_vnni": ["avx512f"]}
    monkeypatch.setattr("sharpi.ops.cpu.library.instruction_set", lambda: "avx2")
    monkeypatch.setattr("sharpi.ops.cpu.library.better_instruction_sets", lambda: better)
    expected = "CPU kernels: avx2 (avx512_vnni needs what this processor lacks: avx512f)"
    assert sharpi("--version").out.splitlines()[1] == expected


@pytest.mark.parametrize("word", ["-V", "-v", "version"])
def test_other_words_for_the_version(sharpi: CommandLine, word: str) -> None:
    result = sharpi(word)
    assert (result.exit_code, result.out) == (0, sharpi("--version").out)


def test_version_without_the_library(
    sharpi: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    missing = SharpiError("the native library is missing; run `make run`")

    def fail() -> str:
        raise missing

    monkeypatch.setattr("sharpi.ops.cpu.library.instruction_set", fail)
    result = sharpi("--version")
    assert result.exit_code == 0
    assert result.out.splitlines()[1] == f"CPU kernels: none; {missing}"


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_the_commands(sharpi: CommandLine, flag: str) -> None:
    result = sharpi(flag)
    assert result.exit_code == 0
    for name in (*COMMANDS, "-V, -v, --version"):
        assert f"  {name} " in result.out


def test_no_command_shows_help_and_fails(sharpi: CommandLine) -> None:
    result = sharpi()
    assert (result.exit_code, result.out) == (2, "")
    assert "Talk:" in result.err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_one_line_summary(sharpi: CommandLine, command: str) -> None:
    assert sharpi(command, "--help").exit_code == 0
    row = next(line for line in sharpi("--help").out.splitlines() if f"  {command} " in line)
    assert row.endswith(".")
    assert not row.endswith("...")


def test_help_asked_before_a_command_shows_all_of_them(sharpi: CommandLine) -> None:
    assert sharpi("--help", "run").out == sharpi("--help").out


def test_help_imports_nothing_heavy() -> None:
    commands = [[*command, "--help"] for command in ([], ["run"], ["serve"], ["bench"], ["pull"])]
    code = (
        f"import sys; from sharpi.cli.main import main; codes = set(map(main, {commands!r}));"
        f"print('LOADED', [m for m in {HEAVY!r} if m in sys.modules]); sys.exit(any(codes))"
    )
    result = python(code)
    assert result.returncode == 0
    assert result.stdout.splitlines()[-1] == "LOADED []"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["run", "--tmep", "1"], "--temp"),
        (["run", "--stopp", "1"], "--stop"),
        (["rnu"], "run"),
        (["--versoin"], "--version"),
        (["run", "-c"], "-c"),
        (["plan", "a", "b", "c"], "b"),
        (["tokenize"], "MODEL"),
        (["logits", "m.gguf"], "--tokens"),
        (["perplexity", "m.gguf"], "--file"),
    ],
)
def test_usage_error_is_one_line_with_a_hint(
    sharpi: CommandLine, arguments: list[str], hint: str
) -> None:
    result = sharpi(*arguments)
    assert (result.exit_code, result.out, result.err.count("\n")) == (2, "", 1)
    assert result.err.startswith("error: ")
    assert hint in result.err
    assert "--help'" in result.err


class TestBugs:
    def test_one_line_with_the_way_to_more(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        engine.scripts = [[KeyError("layer\n7")]]
        result = sharpi("run", "m.gguf", "hi")
        assert (result.exit_code, result.err.count("\n")) == (70, 1)
        assert "KeyError" in result.err
        assert "SHARPI_DEBUG=1" in result.err

    def test_traceback_on_request(
        self, sharpi: CommandLine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SHARPI_DEBUG", "1")
        engine.scripts = [[KeyError("layer")]]
        result = sharpi("run", "m.gguf", "hi")
        assert result.exit_code == 70
        assert "Traceback" in result.err


def test_too_little_memory_is_no_bug(sharpi: CommandLine, engine: FakeEngine) -> None:
    engine.scripts = [[MemoryError("Unable to allocate 954 GiB")]]
    result = sharpi("run", "m.gguf", "hi")
    assert (result.exit_code, result.err.count("\n")) == (1, 1)
    assert "954 GiB" in result.err
    assert "-c" in result.err


def test_module_runs_as_a_program() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "sharpi", "--version"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"sharpi {__version__}\n")


def test_shell_completion_of_commands() -> None:
    code = (
        "import os, sys; from sharpi.cli.main import main; os.environ.update("
        "_SHARPI_COMPLETE='complete_bash', COMP_WORDS='sharpi to', COMP_CWORD='1');"
        "sys.exit(main([]))"
    )
    assert python(code).stdout.split() == ["tokenize"]


def test_output_that_the_terminal_cannot_show() -> None:
    code = (
        "import sys; sys.path.insert(0, 'tests/cli'); import fake_engine as fake;"
        "engine = fake.FakeEngine(); engine.scripts = [['caf', '\\u00e9']];"
        "sys.modules['sharpi.engine.loader'] = fake.loader_module(engine);"
        "from sharpi.cli.main import main;"
        "sys.stdout.reconfigure(encoding='ascii'); sys.exit(main(['run', 'm.gguf', 'hi']))"
    )
    result = python(code)
    assert (result.returncode, result.stdout) == (0, "caf?\n")


@pytest.mark.parametrize("step", ["parse_args", "invoke"])
def test_ctrl_c_writes_no_empty_line(
    sharpi: CommandLine, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(typer.core.TyperGroup, step, interrupted)
    result = sharpi("version")
    assert (result.exit_code, result.out, result.err) == (130, "", "")
