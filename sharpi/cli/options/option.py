"""Functions that declare an option or argument of the command line, and check values.

The environment variable of an option is its first long name in capitals: SHARPI_CTX_SIZE sets
`--ctx-size`. A flag overrides its variable, and an empty variable counts as unset.
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
    """Declares an option, with an environment variable named after its first long name.

    `also` is a second environment variable, which users of another program know.
    """
    variables = (_variable(names),) if also is None else (_variable(names), also)
    return Declared(tuple(names.split()), help, metavar, variables, **settings)


def local_option(names: str, help: str, metavar: str | None = None, **settings: Any) -> Declared:
    """Declares an option of a single command, without an environment variable."""
    return Declared(tuple(names.split()), help, metavar, **settings)


def argument(metavar: str, help: str, **settings: Any) -> Declared:
    """Declares a positional argument."""
    return Declared((), help, metavar, **settings)


def _variable(names: str) -> str:
    first_long = names[names.index("--") + 2 :].split()[0].split("/")[0]
    return "SHARPI_" + first_long.replace("-", "_").upper()


def count(value: int | None) -> int | None:
    """Returns the value; raises BadParameter if it exceeds a 32-bit integer."""
    if value is not None and value > LARGEST_COUNT:
        raise click.BadParameter(f"{str(value)!r} is above {LARGEST_COUNT}, the largest value")
    return value


def finite(value: float | None) -> float | None:
    """Returns the value; raises BadParameter for nan and inf."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter("not a finite number")
    return value


def positive(value: float) -> float:
    """Returns the value; raises BadParameter unless it is finite and above 0."""
    if not value > 0 or not math.isfinite(value):
        raise click.BadParameter("not a finite number above 0")
    return value
