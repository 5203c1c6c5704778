"""Which options of the running command were given, and by what name its messages call them."""

from typing import Any, NoReturn

import typer

from sharpi.errors import UsageError


class OptionSources:
    """What the flags and variables of one command line set; the rest are defaults."""

    def __init__(self, context: typer.Context) -> None:
        self._context = context
        self._options: dict[str, Any] = {each.name or "": each for each in context.command.params}

    def by_flag(self, parameter: str) -> bool:
        """Whether it stood on the command line."""
        return self._source(parameter) == "COMMANDLINE"

    def by_variable(self, parameter: str) -> bool:
        """Whether its variable was set and no flag won over it."""
        return self._source(parameter) == "ENVIRONMENT"

    def has(self, parameter: str) -> bool:
        """Whether it was set, and is no default."""
        return self.by_flag(parameter) or self.by_variable(parameter)

    def name(self, parameter: str) -> str:
        """The variable that gave it, or else its first long flag; of a switch the half meant."""
        option = self._options[parameter]
        if self.by_variable(parameter):
            return str(option.envvar)
        is_off = self._context.params[parameter] is False
        names = option.secondary_opts if is_off else option.opts
        return str(next(name for name in names if name.startswith("--")))

    def refuse(self, first: str, second: str, reason: str) -> NoReturn:
        """Raises UsageError for two that contradict each other, with both names."""
        names = f"{self.name(first)} and {self.name(second)}"
        raise UsageError(f"{names} contradict each other: {reason}; keep one")

    def _source(self, parameter: str) -> str | None:
        source = self._context.get_parameter_source(parameter)
        return None if source is None else source.name
