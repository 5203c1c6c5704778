"""Tells which options of the running command were given, and their names for messages."""

from typing import Any, NoReturn

import typer

from sharpi.errors import UsageError


class OptionSources:
    """The sources of one command's options: flags, variables or defaults."""

    def __init__(self, context: typer.Context) -> None:
        self._context = context
        self._options: dict[str, Any] = {each.name or "": each for each in context.command.params}

    def by_flag(self, parameter: str) -> bool:
        """Returns whether a flag gave the option."""
        return self._source(parameter) == "COMMANDLINE"

    def by_variable(self, parameter: str) -> bool:
        """Returns whether its variable gave the option, without a flag that overrides it."""
        return self._source(parameter) == "ENVIRONMENT"

    def has(self, parameter: str) -> bool:
        """Returns whether a flag or a variable gave the option."""
        return self.by_flag(parameter) or self.by_variable(parameter)

    def name(self, parameter: str) -> str:
        """Returns the variable that gave the option, or else its long flag.

        The flag of a switch that is off is its `--no-` form.
        """
        option = self._options[parameter]
        if self.by_variable(parameter):
            return str(option.envvar)
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
