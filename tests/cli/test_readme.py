"""The README's tables of flags against the options of `run`, and those that only `serve` has."""

import inspect
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from typer.main import get_command

from sharpi.cli.main import make_app

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8").splitlines()


def options_of(command: str) -> dict[str, Any]:
    """By name; each bears the type that the command's function gives it."""
    function = next(
        each.callback for each in make_app().registered_commands if _name(each) == command
    )
    parameters = inspect.signature(function).parameters
    parsed = get_command(make_app()).commands[command].params  # type: ignore[attr-defined]
    options = {each.name: each for each in parsed if each.param_type_name == "option"}
    for name, option in options.items():
        option.hint = get_args(parameters[name].annotation)[0]
    return options


def _name(command: Any) -> str:
    return command.name or command.callback.__name__


OPTIONS = list((options_of("serve") | options_of("run")).values())


def row(option: Any) -> str:
    """As the table is to have it: `| flags and their value | variable | default |`."""
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    return f"| {names}{_values(option)} | `{option.envvar}` | {_default(option)} |"


def _values(option: Any) -> str:
    choices = [
        each for each in (option.hint, *get_args(option.hint)) if get_origin(each) is Literal
    ]
    if choices:
        return " " + ", ".join(get_args(choices[0]))
    return f" {option.metavar}" if option.metavar else ""


def _default(option: Any) -> str:
    if isinstance(option.show_default, str):
        return option.show_default
    if isinstance(option.default, bool):
        return "on" if option.default else "off"
    return "none" if option.default in (None, []) else str(option.default)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_the_table_has_the_row(option: Any) -> None:
    assert row(option) in README


def test_the_table_has_no_other_rows() -> None:
    rows = [line for line in README if line.startswith("| `-") and "`SHARPI_" in line]
    assert sorted(rows) == sorted(map(row, OPTIONS))
