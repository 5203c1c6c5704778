"""Tells which options of the running command were given, and their names in messages."""

from collections.abc import Sequence
from typing import Any, NoReturn

import click

from sharpi.cli.parsing.variables import given_variable
from sharpi.errors import UsageError


class OptionSources:
    """The sources of a command's option values: flags, variables or defaults."""

    def __init__(self, context: click.Context) -> None:
        self._context = context
        self._options: dict[str, Any] = {each.name or "": each for each in context.command.params}

    def by_flag(self, parameter: str) -> bool:
        """Returns whether a flag gave the option."""
        return self._source(parameter) == "COMMANDLINE"

    def by_variable(self, parameter: str) -> bool:
        """Returns whether a variable gave the option, and no flag overrides it."""
        return self._source(parameter) == "ENVIRONMENT"

    def has(self, parameter: str) -> bool:
        """Returns whether a flag or a variable gave the option."""
        return self.by_flag(parameter) or self.by_variable(parameter)

    def given(self, parameters: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """Returns those of `parameters` that were given, with their names in messages."""
        return tuple((each, self.name(each)) for each in parameters if self.has(each))

    def name(self, parameter: str) -> str:
        """Returns the variable that gave the option, or otherwise its long flag.

        The flag of a switch that is off is its `--no-` form.
        """
        option = self._options[parameter]
        if self.by_variable(parameter):
            return given_variable(option)
        is_off = self._context.params[parameter] is False
        names = option.secondary_opts if is_off else option.opts
        return str(next(name for name in names if name.startswith("--")))

    def refuse(self, first: str, second: str, reason: str) -> NoReturn:
        """Raises UsageError that names two contradictory options."""
        names = f"{self.name(first)} and {self.name(second)}"
        raise UsageError(f"{names} contradict each other: {reason}; keep one")

    def _source(self, parameter: str) -> str | None:
        source = self._context.get_parameter_source(parameter)
        return None if source is None else source.name
