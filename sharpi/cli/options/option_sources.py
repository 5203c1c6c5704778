"""Tells how each option of the running command was set, and its name in messages."""

from typing import Any, NoReturn

import click

from sharpi.cli.parsing.variables import given_variable
from sharpi.errors import UsageError


class OptionSources:
    """The source of each option value of a command: flag, environment variable or default."""

    def __init__(self, context: click.Context) -> None:
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
        names = option.secondary_opts if is_off else option.opts
        return str(next(name for name in names if name.startswith("--")))

    def raise_conflict(self, first: str, second: str, reason: str) -> NoReturn:
        """Raises UsageError, which names two contradictory options and the reason."""
        names = f"{self.name(first)} and {self.name(second)}"
        raise UsageError(f"{names} contradict each other: {reason}; keep one")

    def _source(self, parameter: str) -> str | None:
        source = self._context.get_parameter_source(parameter)
        return None if source is None else source.name
