"""The help: a screen with -h, everything with --help, and man pages and completion beside it."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from command_line import CommandLine

from sharpi.cli.commands.examples import EXAMPLES, PROGRAM
from sharpi.cli.commands.table import NAMES, SECTIONS
from sharpi.cli.main import make_app

SCREEN_LINES = 24
SHELLS = ("bash", "zsh", "fish")


@pytest.fixture(autouse=True)
def narrow(clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def calls(line: str) -> list[list[str]]:
    """Returns the arguments of each call of sharpi in a line of shell."""
    found = re.findall(r"(?:^|[|(] ?)sharpi ([^|)<>]*)", line)
    return [shlex.split(arguments) for arguments in found]


@pytest.mark.parametrize("command", NAMES)
class TestEveryCommand:
    def test_short_help_is_a_screen(self, sharpi: CommandLine, command: str) -> None:
        result = sharpi(command, "-h")
        lines = result.out.splitlines()
        assert (result.exit_code, result.err) == (0, "")
        assert len(lines) <= SCREEN_LINES
        assert max(map(len, lines)) <= 80
        assert f"`sharpi {command} --help` explains everything." in lines

    def test_has_examples_that_its_options_understand(
        self, sharpi: CommandLine, command: str
    ) -> None:
        shown = sharpi(command, "--help").out
        app = make_app()
        assert EXAMPLES[command]
        for line in EXAMPLES[command]:
            assert line in shown
            for name, *arguments in calls(line):
                found = app.get_command(click.Context(app), name)
                assert found is not None
                found.make_context(name, arguments)

    def test_help_of_a_command(self, sharpi: CommandLine, command: str) -> None:
        assert sharpi("help", command).out == sharpi(command, "--help").out

    def test_man_page(self, sharpi: CommandLine, command: str) -> None:
        page = sharpi("man", command).out
        assert page.startswith(f'.TH "SHARPI-{command.upper()}" "1"')
        for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES"):
            assert f"\n.SH {section}\n" in page


def test_the_short_help_names_the_words_that_an_argument_takes(sharpi: CommandLine) -> None:
    assert "CLIENT  claude, codex, aider or opencode\n" in sharpi("launch", "-h").out
    assert "ACTION  list, show [ID], search TEXT" in sharpi("log", "-h").out


def test_everyday_flags_of_run(sharpi: CommandLine) -> None:
    text = sharpi("run", "-h").out
    options, examples = text.partition("Everyday options:")[2].split("Examples:")
    for name in ("-n, --predict N", "--temp T", "-c, --ctx-size N", "--json", "-f, --file FILE"):
        assert f"\n  {name} " in options
    assert "--moe" not in text
    assert examples.count("sharpi run ") == 4  # and the line that leads on


def test_all_flags_of_run_with_those_of_experts_last(sharpi: CommandLine) -> None:
    text = sharpi("run", "--help").out
    headings = re.findall(r"^([A-Z][A-Za-z ]+):$", text, re.MULTILINE)
    assert headings[:2] == ["Arguments", "Prompt and output"]
    last = ["Machine", "Experts", "Experts not on the GPU", "Finding a fault", "Examples"]
    assert headings[-5:] == last
    assert len(headings) == len(set(headings))
    assert "env var" not in text
    assert text.count("SHARPI_") == 1
    assert "variable: SHARPI_PREDICT is --predict" in " ".join(text.split())


def test_the_rule_names_the_options_without_variables(sharpi: CommandLine) -> None:
    text = " ".join(sharpi("perplexity", "--help").out.split())
    assert "Each option but --file, --ctx-size has a variable" in text
    assert "variable" not in sharpi("man", "--help").out


def test_commands_stand_under_what_they_are_for(sharpi: CommandLine) -> None:
    text = sharpi("--help").out
    for heading, names in SECTIONS.items():
        section = text.partition(f"\n{heading}:\n")[2].split("\n\n")[0]
        assert [line.split()[0] for line in section.splitlines()] == list(names)
    assert all(line in text for line in PROGRAM)
    assert sharpi("help").out == text


def test_help_of_no_command(sharpi: CommandLine) -> None:
    result = sharpi("help", "rnu")
    assert result.exit_code == 2
    assert result.err == (
        "error: 'rnu' is no command of sharpi; did you mean 'run'? See 'sharpi --help'\n"
    )
    result = sharpi("help", "nope")
    assert result.err == "error: 'nope' is no command of sharpi; see 'sharpi --help'\n"


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("model.gguf", "`sharpi run model.gguf`?"),
        ("qwen3:30b", "`sharpi run qwen3:30b`?"),
        ("Why is it?", "`sharpi run MODEL 'Why is it?'`?"),
        ("rnu", "'run'?"),
    ],
)
def test_a_model_or_a_prompt_without_a_command(sharpi: CommandLine, word: str, meant: str) -> None:
    assert f"is no command of sharpi; did you mean {meant} See 'sharpi --help'" in sharpi(word).err


@pytest.mark.parametrize("command", NAMES)
def test_no_line_is_wider_than_the_terminal(
    sharpi: CommandLine, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for text in (sharpi(command, "--help").out, sharpi(command, "-h").out):
        assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_script(sharpi: CommandLine, shell: str, tmp_path: Path) -> None:
    result = sharpi("completion", shell)
    assert (result.exit_code, result.err) == (0, "")
    assert f"_SHARPI_COMPLETE={shell}_complete" in result.out
    if program := shutil.which(shell):
        (tmp_path / "script").write_text(result.out)
        subprocess.run([program, "-n", str(tmp_path / "script")], check=True)


@pytest.mark.slow
def test_bash_completes_flags_choices_and_files(tmp_path: Path) -> None:
    """The script asks the installed program, here one on PATH that is this Python's."""
    (tmp_path / "model.gguf").touch()
    script = (
        'eval "$(sharpi completion bash)"; COMP_WORDS=(sharpi "$@"); COMP_CWORD=$#;'
        "_sharpi_completion sharpi; echo ${COMPREPLY[@]}"
    )
    for words, found in (
        (["run", "--prec"], "--precision"),
        (["run", "--precision", "int"], "int16 int8"),
        (["perpl"], "perplexity"),
        (["help", "to"], "tokenize"),
    ):
        done = subprocess.run(
            ["bash", "-c", script, "bash", *words],
            cwd=tmp_path,
            env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert sorted(done.stdout.split()) == found.split(), done.stderr


def test_all_man_pages(sharpi: CommandLine, tmp_path: Path) -> None:
    result = sharpi("man", "--folder", str(tmp_path / "man1"))
    assert (result.exit_code, result.err) == (0, "")
    written = {path.name for path in (tmp_path / "man1").iterdir()}
    assert written == {"sharpi.1", *(f"sharpi-{name}.1" for name in NAMES)}
    program = (tmp_path / "man1" / "sharpi.1").read_text()
    assert program == sharpi("man").out
    assert all(f"\\fBsharpi-{name}\\fR(1)" in program for name in NAMES)


def test_man_pages_that_cannot_be_written(sharpi: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = sharpi("man", "--folder", str(tmp_path / "file"))
    assert (result.exit_code, result.err.count("\n")) == (2, 1)
    assert f"cannot write {tmp_path / 'file'}" in result.err


@pytest.mark.skipif(shutil.which("man") is None, reason="there is no man program")
def test_man_understands_a_page(sharpi: CommandLine) -> None:
    done = subprocess.run(
        ["man", "--warnings", "-l", "-"],
        input=sharpi("man", "run").out,
        capture_output=True,
        text=True,
        check=True,
        env={"MANPAGER": "cat", "PATH": "/usr/bin:/bin", "MANWIDTH": "80"},
    )
    assert done.stderr == ""
    assert "sharpi-run - Answer one prompt" in re.sub(".\b", "", done.stdout)
