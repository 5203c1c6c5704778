"""Finds SHARPI_* environment variables that no command reads, and suggests the right names."""

import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from sharpi.cli.commands.examples import EXAMPLES
from sharpi.cli.commands.table import NAMES, command_function
from sharpi.cli.output.terminal import print_note
from sharpi.cli.parsing.command import Command
from sharpi.cli.parsing.variables import variables_of
from sharpi.errors import UsageError

_PREFIX = "SHARPI_"
_OTHERS = ("SHARPI_DEBUG", "SHARPI_NATIVE_LIBRARY")  # variables that belong to no option


class VariableCheckedCommand(Command):
    """A command that warns of misspelt environment variables on stderr before it runs."""

    def invoke(self, ctx: Any) -> Any:
        refuse_conflicts(self.params, os.environ)
        line = misspelt_note(self.params, os.environ)
        if line is not None:
            print_note(line)
        return super().invoke(ctx)


def load_command(name: str) -> VariableCheckedCommand:
    """Imports and returns the command `name`."""
    return VariableCheckedCommand(name, command_function(name), EXAMPLES.get(name, ()))


def refuse_conflicts(parameters: Iterable[Any], environment: Mapping[str, str]) -> None:
    """Raises UsageError if two environment variables for one option have different values."""
    for each in parameters:
        given = [name for name in variables_of(each) if environment.get(name)]
        if len({environment[name] for name in given}) > 1:
            raise UsageError(f"{given[0]} and {given[1]} contradict each other; keep one")


def misspelt_note(parameters: Iterable[Any], environment: Mapping[str, str]) -> str | None:
    """Returns one note on all SHARPI_* variables that no command reads; None if all are known.

    `parameters` are those of the running command. The other commands are imported only if one of
    the variables belongs to none of `parameters`.
    """
    given = {name for name, value in environment.items() if name.startswith(_PREFIX) and value}
    unknown = given - _variables(parameters)
    if not unknown:
        return None
    every = _all_parameters()
    unknown -= _variables(every)
    candidates = _candidates(every)
    return "; ".join(_described(name, candidates) for name in sorted(unknown)) or None


def _variables(parameters: Iterable[Any]) -> set[str]:
    return {name for each in parameters for name in variables_of(each)}.union(_OTHERS)


def _all_parameters() -> list[Any]:
    return [each for name in NAMES for each in load_command(name).params]


def _candidates(parameters: Iterable[Any]) -> dict[str, str]:
    """Maps each name that a user may try for an option's variable to the documented one.

    The names are all variables of the option, and all its long flags written as variables.
    """
    found = {name: name for name in _OTHERS}
    for each in parameters:
        for variable in variables_of(each)[:1]:
            flags = [name for name in each.opts if name.startswith("--")]
            names = [_PREFIX + name[2:].replace("-", "_").upper() for name in flags]
            found |= dict.fromkeys([*names, *variables_of(each)], variable)
    return found


def _described(name: str, candidates: Mapping[str, str]) -> str:
    words = {each.removeprefix(_PREFIX): variable for each, variable in candidates.items()}
    close = get_close_matches(name.removeprefix(_PREFIX).upper(), words, n=1, cutoff=0.7)
    meant = f": did you mean {words[close[0]]}?" if close else ""
    return f"{name} is not a variable of sharpi and has no effect{meant}"
