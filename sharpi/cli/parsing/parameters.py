"""Turns the declared options and arguments of a command into those of Click."""

from typing import Any, get_args, get_origin

import click

from sharpi.cli.parsing.fields import REQUIRED, Field
from sharpi.cli.parsing.value_types import value_type


class DeclaredOption(click.Option):
    """A Click option that stores its Field, for the help and for messages."""

    def __init__(self, field: Field) -> None:
        self.field = field
        super().__init__([field.name, *field.declared.names], **_settings(field))


class DeclaredArgument(click.Argument):
    """A Click argument that stores its Field; the help shows the name of the usage line."""

    def __init__(self, field: Field) -> None:
        self.field = field
        settings = _settings(field)
        settings.pop("help")
        many = {"nargs": -1} if settings.pop("multiple") else {}
        super().__init__([field.name], **settings | many)

    def make_metavar(self, ctx: click.Context) -> str:
        """Returns the argument's name in the usage line, in brackets if it is optional."""
        name = self.metavar or ""
        dots = "..." if self.nargs == -1 else ""
        return f"{name}{dots}" if self.required else f"[{name}{dots}]"


def parameter(field: Field) -> DeclaredOption | DeclaredArgument:
    """Returns the Click option or argument of a field."""
    return DeclaredArgument(field) if field.declared.is_argument else DeclaredOption(field)


def _settings(field: Field) -> dict[str, Any]:
    declared, is_list = field.declared, get_origin(field.hint) is list
    kind = get_args(field.hint)[0] if is_list else field.hint
    settings: dict[str, Any] = {
        "help": declared.help,
        "metavar": declared.metavar,
        "envvar": list(declared.variables) or None,
        "required": field.default is REQUIRED,
        "type": value_type(kind, declared),
        "multiple": is_list,
    }
    if is_list:
        settings["callback"] = _as_list
    elif field.default is not REQUIRED:
        settings["default"] = field.default
    if field.hint is bool and not declared.is_argument:
        settings["is_flag"] = True
    return settings


def _as_list(context: click.Context, parameter: click.Parameter, values: Any) -> list[Any] | None:
    return list(values) or None
