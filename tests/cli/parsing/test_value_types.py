"""The values that options take, and the line that refuses others: it shows what was typed."""

import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import click
import pytest
from command_line import CommandLine
from fake_engine import FakeEngine

from sharpi.cli.options.option import count, option, positive
from sharpi.cli.parsing.value_types import RefusedValue, value_type


def read(hint: Any, text: str, **settings: Any) -> Any:
    return value_type(hint, option("--it", "help", **settings)).convert(text, None, None)


@pytest.mark.parametrize(
    ("hint", "text", "value"),
    [
        *((int, "0", 0), (int, "-1", -1), (int, "+7", 7), (int, "007", 7), (int, " 3 ", 3)),
        *((float, "1", 1.0), (float, "-.5", -0.5), (float, "1e3", 1000.0)),
        *((str, "", ""), (str, " a ", " a "), (Path, "a b", Path("a b"))),
        *((bool, "on", True), (bool, "TRUE", True), (bool, "1", True), (bool, "no", False)),
        (Literal["a", "b"], "b", "b"),
    ],
)
def test_value(hint: Any, text: str, value: Any) -> None:
    taken = read(hint, text)
    assert (type(taken), taken) == (type(value), value)


@pytest.mark.parametrize(
    ("hint", "text", "line"),
    [
        (int, "abc", "'abc' is not a whole number"),
        (int, "1.5", "'1.5' is not a whole number"),
        (int, "", "'' is not a whole number"),
        (int, "1_0", "'1_0' is not a whole number"),
        (int, "²", "'²' is not a whole number"),
        (int, "9" * 5000, f"'{'9' * 60}' is not a whole number"),
        (float, "warm", "'warm' is not a number"),
        (float, "nan", "'nan' is not a finite number"),
        (bool, "maybe", "'maybe' is neither 'on' nor 'off'"),
        (Literal["int8", "int16"], "int7", "'int7' is none of int8, int16; did you mean int8?"),
        (Literal["slru", "lru"], "SLRU", "'SLRU' is none of slru, lru; did you mean slru?"),
    ],
)
def test_refused(hint: Any, text: str, line: str) -> None:
    with pytest.raises(RefusedValue) as caught:
        read(hint, text)
    assert caught.value.message.startswith(line)


@pytest.mark.parametrize(
    ("text", "settings", "line"),
    [
        ("0", {"min": 1}, "'0' is below 1, the smallest value"),
        ("70000", {"max": 65535}, "'70000' is above 65535, the largest value"),
        (str(2**31), {"callback": count}, f"'{2**31}' is above {2**31 - 1}, the largest value"),
        ("-1", {"callback": positive}, "'-1': not a finite number above 0"),
    ],
)
def test_limits(text: str, settings: dict[str, Any], line: str) -> None:
    with pytest.raises(RefusedValue) as caught:
        read(int, text, **settings)
    assert caught.value.message == line


def test_defaults_are_not_checked() -> None:
    value = value_type(int, option("--it", "help", min=1)).convert(0, None, None)
    assert value == 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["run", "-n", "abc"], "-n / --predict / --n-predict: 'abc' is not a whole number"),
        (["run", "--temp", "hot"], "--temp / --temperature: 'hot' is not a number"),
        (["run", "-n"], "-n needs a value: -n N"),
        (["run", "--json=1"], "--json is a switch and takes no value"),
        (["run", "--tmep", "1"], "there is no option --tmep; did you mean"),
        (["serve", "--api-key", " a"], "--api-key: ' a': a key must be printable ASCII"),
        (["plan", "a.gguf", "b"], "'b' is one argument too many; 'sharpi plan' takes [MODEL]"),
        (["logits", "a.gguf"], "--tokens IDS.npy is missing"),
        (["tokenize"], "MODEL is missing"),
    ],
)
def test_errors_of_commands(sharpi: CommandLine, arguments: list[str], line: str) -> None:
    result = sharpi(*arguments)
    assert (result.exit_code, result.out, result.err.count("\n")) == (2, "", 1)
    assert result.err.startswith(f"error: {line}")
    assert result.err.lower().endswith(f" see 'sharpi {arguments[0]} --help'\n")


def test_unknown_command(sharpi: CommandLine) -> None:
    result = sharpi("rnu")
    assert result.exit_code == 2
    assert result.err.startswith("error: 'rnu' is no command of sharpi; did you mean 'run'")


def test_a_variable_is_named(
    sharpi: CommandLine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARPI_TEMP", "warm")
    result = sharpi("run", "m.gguf", "hi")
    assert result.err == (
        "error: variable SHARPI_TEMP: 'warm' is not a number; see 'sharpi run --help'\n"
    )


def test_completion_of_choices() -> None:
    command = value_type(Literal["int8", "int16", "f32"], option("--it", "help"))
    found = command.shell_complete(None, click.Argument(["it"]), "int")
    assert [each.value for each in found] == ["int8", "int16"]


def test_the_parser_needs_neither_typer_nor_pydantic() -> None:
    code = (
        "import sys; from sharpi.cli.main import main;"
        "main(['run', '/none.gguf', '-p', 'Hi', '-n', '3', '--temp', '0.5', '--isa', 'avx2']);"
        "sys.exit(bool({'pydantic', 'typer', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("error: /none.gguf")
