"""Finds SHARPI_* environment variables that no command reads, and suggests the right names."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from sharpi.cli.commands.table import COMMANDS, load_command
from sharpi.cli.option_sources import variables_of
from sharpi.errors import UsageError, close_matches

_PREFIX = "SHARPI_"
_OTHERS = ("SHARPI_DEBUG", "SHARPI_NATIVE_LIBRARY")  # variables that belong to no option


def refuse_conflicts(parameters: Iterable[Any]) -> None:
    """Raises UsageError if two environment variables for one option have different values."""
    for parameter in parameters:
        given = [name for name in variables_of(parameter) if os.environ.get(name)]
        if len({os.environ[name] for name in given}) > 1:
            raise UsageError(f"{given[0]} and {given[1]} contradict each other; keep one")


def unknown_note(parameters: Iterable[Any]) -> str | None:
    """Returns one note on all SHARPI_* variables that no command reads; None if all are known.

    `parameters` are those of the running command. The other commands are imported only if one of
    the variables belongs to none of `parameters`.
    """
    given = {name for name, value in os.environ.items() if name.startswith(_PREFIX) and value}
    unknown = given - _variables(parameters)
    if not unknown:
        return None
    every = [each for name in COMMANDS for each in load_command(name).params]
    words = _documented(every)
    return (
        "; ".join(_described(name, words) for name in sorted(unknown - _variables(every))) or None
    )


def _variables(parameters: Iterable[Any]) -> set[str]:
    return {name for each in parameters for name in variables_of(each)}.union(_OTHERS)


def _documented(parameters: Iterable[Any]) -> dict[str, str]:
    """Maps the names that a user may try for a variable, such as long flags, to the right one."""
    names = {name: name for name in _OTHERS}
    for parameter in parameters:
        for variable in variables_of(parameter)[:1]:
            flags = [name[2:].replace("-", "_").upper() for name in parameter.opts]
            names |= dict.fromkeys([*flags, *variables_of(parameter)], variable)
    return {name.removeprefix(_PREFIX): variable for name, variable in names.items()}


def _described(name: str, words: Mapping[str, str]) -> str:
    close = close_matches(name.removeprefix(_PREFIX), words)
    meant = f": did you mean {words[close[0]]}?" if close else ""
    return f"{name} is not a variable of sharpi and has no effect{meant}"
