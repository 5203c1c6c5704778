"""Tells how each option of the running command was set, and its name in messages."""

import os
from typing import Any, NoReturn

import typer

from sharpi.errors import UsageError


def variables_of(parameter: Any) -> tuple[str, ...]:
    """Returns the environment variables of a Typer parameter; the first one is documented."""
    names = parameter.envvar
    return (names,) if isinstance(names, str) else tuple(names or ())


def given_variable(parameter: Any) -> str:
    """Returns the variable of a parameter that is set, or else the documented one."""
    names = variables_of(parameter)
    return next((name for name in names if os.environ.get(name)), names[0])


class OptionSources:
    """The source of each option value of a command: flag, environment variable or default."""

    def __init__(self, context: typer.Context) -> None:
        self._context = context
        self._options: dict[str, Any] = {each.name or "": each for each in context.command.params}

    def by_flag(self, parameter: str) -> bool:
        """Returns whether a flag set the option."""
        return self._source(parameter) == "COMMANDLINE"

    def by_variable(self, parameter: str) -> bool:
        """Returns whether an environment variable set the option, and no flag did."""
        return self._source(parameter) == "ENVIRONMENT"

    def has(self, parameter: str) -> bool:
        """Returns whether a flag or an environment variable set the option."""
        return self.by_flag(parameter) or self.by_variable(parameter)

    def name(self, parameter: str) -> str:
        """Returns the environment variable that set the option, or else its long flag.

        For a switch that is off, the flag is its `--no-` form.
        """
        option = self._options[parameter]
        if self.by_variable(parameter):
            return given_variable(option)
        is_off = self._context.params[parameter] is False
        names = (is_off and option.secondary_opts) or option.opts
        return str(next(name for name in names if name.startswith("--")))

    def raise_conflict(self, first: str, second: str, reason: str) -> NoReturn:
        """Raises UsageError, which names two contradictory options and the reason."""
        names = f"{self.name(first)} and {self.name(second)}"
        raise UsageError(f"{names} contradict each other: {reason}; keep one")

    def _source(self, parameter: str) -> str | None:
        source = self._context.get_parameter_source(parameter)
        return None if source is None else source.name
