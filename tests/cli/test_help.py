"""The help: everyday options with -h, all with --help, in groups; and shell completion."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine

from sharpi.cli.program import COMMANDS, PROGRAM_EXAMPLES, load_command, make_program


def calls(line: str) -> list[list[str]]:
    """Returns the arguments of each call of sharpi in a line of shell."""
    found = re.findall(r"(?:^|[|(] ?)sharpi ([^|)<>]*)", line)
    return [shlex.split(arguments) for arguments in found]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command(sharpi: CommandLine, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its summary is that of the table, its examples parse, and no line is too wide."""
    monkeypatch.setenv("COLUMNS", "80")
    entry, loaded = COMMANDS[command], load_command(command)
    assert " ".join((loaded.help or "").split("\n\n")[0].split()) == entry.summary
    shown = sharpi(command, "--help")
    short = sharpi(command, "-h")
    assert (shown.exit_code, shown.err, short.exit_code, short.err) == (0, "", 0, "")
    assert f"`sharpi {command} --help` explains everything." in short.out
    examples = entry.examples
    others = [each for text in (shown.out, short.out) for each in text.splitlines()]
    assert max(len(each) for each in others if each.strip() not in examples) <= 80
    assert examples
    for line in examples:
        assert line in shown.out
        for name, *arguments in calls(line):
            load_command(name).make_context(name, arguments)


def test_everyday_flags_of_run(sharpi: CommandLine) -> None:
    text = sharpi("run", "-h").out
    for name in ("--n-predict N", "--temp, ", "-c, --ctx-size N", "--json", "-f, --file FILE"):
        assert name in text
    assert "--moe" not in text
    assert "--moe" in sharpi("run", "--help").out  # -h left nothing behind


def test_all_flags_of_run_with_those_of_experts_last(sharpi: CommandLine) -> None:
    text = sharpi("run", "--help").out
    headings = re.findall(r"^([A-Z][A-Za-z ]+):$", text, re.MULTILINE)
    assert headings[:2] == ["Arguments", "Options"]
    last = ["Machine", "Experts", "Experts not on the GPU", "Finding a fault", "Examples"]
    assert headings[-5:] == last
    assert len(headings) == len(set(headings))


def test_on_a_terminal_headings_are_bold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sharpi.cli.command.supports_styles", lambda stream: True)
    for command, heading in ((load_command("plan"), "Memory"), (make_program(), "Talk")):
        with command.make_context("sharpi", [], resilient_parsing=True) as context:
            assert f"\x1b[1m{heading}\x1b[0m:" in context.get_help()


def test_commands_stand_under_what_they_are_for(sharpi: CommandLine) -> None:
    text = sharpi("--help").out
    for heading in dict.fromkeys(each.section for each in COMMANDS.values()):
        names = [name for name, each in COMMANDS.items() if each.section == heading]
        section = text.partition(f"\n{heading}:\n")[2].split("\n\n")[0]
        assert [line.split()[0] for line in section.splitlines()] == names
    assert all(line in text for line in PROGRAM_EXAMPLES)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("model.gguf", "; did you mean `sharpi run model.gguf`? See"),
        ("qwen3:30b", "; did you mean `sharpi run qwen3:30b`? See"),
        ("Why is it?", "; did you mean `sharpi run MODEL 'Why is it?'`? See"),
        ("rnu", "; did you mean run? See"),
        ("nope", "; see"),
    ],
)
def test_no_command(sharpi: CommandLine, word: str, meant: str) -> None:
    result = sharpi(word)
    assert result.exit_code == 2
    assert result.err == f"error: {word!r} is no command of sharpi{meant} 'sharpi --help'\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("run --prec", "--precision"),
        ("run --precision int", "int16 int8"),
        ("perpl", "perplexity"),
        ("run models/demo/s", "models/demo/stories-moe.gguf"),
        ("plan -m models/", "models/demo/"),
    ],
)
def test_bash_completes_flags_and_choices(tmp_path: Path, words: str, offered: str) -> None:
    """The script asks the installed program, here this Python's."""
    done = subprocess.run(
        [sys.executable, "-m", "sharpi"],
        cwd=Path(__file__).parents[2],
        env=os.environ
        | {
            "_SHARPI_COMPLETE": "complete_bash",
            "COMP_WORDS": f"sharpi {words}",
            "COMP_CWORD": str(len(words.split())),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert sorted(done.stdout.split()) == offered.split(), done.stderr
