"""Declares one option or argument of the command line, with checks of its value.

The variable of an option is its first long name in capitals: `--ctx-size` is SHARPI_CTX_SIZE. A
flag overrides its variable, and an empty variable counts as unset.
"""

import math
from typing import Any

import click

from sharpi.cli.parsing.declared import Declared

LARGEST_COUNT = 2**31 - 1  # counts are 32-bit in the native library


def option(
    names: str,
    help: str,
    metavar: str | None = None,
    *,
    also: str | None = None,
    **settings: Any,
) -> Declared:
    """Declares an option with these names, and with the variable of its first long name.

    `also` is a second variable, which users of another program know.
    """
    variables = (_variable(names),) if also is None else (_variable(names), also)
    return Declared(tuple(names.split()), help, metavar, variables, **settings)


def local_option(names: str, help: str, metavar: str | None = None, **settings: Any) -> Declared:
    """Declares an option of a single command, which has no variable."""
    return Declared(tuple(names.split()), help, metavar, **settings)


def argument(metavar: str, help: str, **settings: Any) -> Declared:
    """Declares an argument, which is given by its position."""
    return Declared((), help, metavar, **settings)


def _variable(names: str) -> str:
    first_long = names[names.index("--") + 2 :].split()[0].split("/")[0]
    return "SHARPI_" + first_long.replace("-", "_").upper()


def count(value: int | None) -> int | None:
    """Returns the value; refuses numbers that are too large for the native library."""
    if value is not None and value > LARGEST_COUNT:
        raise click.BadParameter(f"{str(value)!r} is above {LARGEST_COUNT}, the largest value")
    return value


def finite(value: float | None) -> float | None:
    """Returns the value; refuses nan and inf."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter("not a finite number")
    return value


def positive(value: float) -> float:
    """Returns the value; refuses nan, inf and values that are not above 0."""
    if not value > 0 or not math.isfinite(value):
        raise click.BadParameter("not a finite number above 0")
    return value
