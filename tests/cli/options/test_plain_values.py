"""Options without adapters: the same values and the same refusals as Typer's own."""

import subprocess
import sys
from typing import Any

import pytest
import typer
from typer.main import get_command

from sharpi.cli.main import make_app
from sharpi.cli.options.plain_values import _NOT_PLAIN, plain

TEXTS = (
    *("0", "1", "-1", "007", "-0", "12345678901234567890", "1024", "1025", "--1", "1-", "-", "."),
    *("1.5", "-.5", "1.", "1e3", "nan", "inf", " 3", "3 ", "1_0", "²", "٣", "0x10", "+1", ""),
    *("auto", "Auto", "int8", "f16", "q8_0", "cpu", "slru", "yes", "true", "4GB", "a,b", "/tmp"),
)


def parameters() -> list[Any]:
    group: Any = get_command(make_app())
    return [each for command in group.commands.values() for each in command.params]


def by_typer(parameter: Any, value: Any) -> Any:
    """Returns the value by Typer's adapter, without callbacks; _NOT_PLAIN if it refuses."""
    try:
        return parameter.get_runtime_param().coerce(value, param=parameter, ctx=None)
    except typer.BadParameter:
        return _NOT_PLAIN


@pytest.mark.parametrize("value", [None, *TEXTS])
def test_what_is_plain_is_what_typer_makes_of_it(value: str | None) -> None:
    taken = 0
    for parameter in parameters():
        mine = plain(parameter, value)
        if mine is _NOT_PLAIN:
            continue
        theirs = by_typer(parameter, value)
        assert (type(mine), mine) == (type(theirs), theirs), parameter.name
        taken += 1
    assert taken > 20  # texts at least


def test_defaults_are_plain() -> None:
    for parameter in parameters():
        default = parameter.default
        if type(default) in (bool, int, float, str):
            assert plain(parameter, default) == by_typer(parameter, default) == default


def test_plain_options_do_without_pydantic() -> None:
    code = (
        "import sys; from sharpi.cli.main import main;"
        "main(['run', '/none.gguf', '-p', 'Hi', '-n', '3', '--temp', '0.5', '--isa', 'avx2']);"
        "sys.exit('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("error: /none.gguf")
