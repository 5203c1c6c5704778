"""Defines one option of the command line: its names, its SHARPI_* variable and checks of its value.

The variable is the first long name in capitals: `--ctx-size` is SHARPI_CTX_SIZE. A flag overrides
its variable, and an empty variable counts as unset.
"""

import math
from typing import Any

import typer

LARGEST_COUNT = 2**31 - 1  # counts are 32-bit in the native library


def option(names: str, help: str, metavar: str | None = None, **settings: Any) -> Any:
    """Returns a Typer option with these names, and the variable of its first long name."""
    first_long = names[names.index("--") + 2 :].split()[0].split("/")[0]
    variable = "SHARPI_" + first_long.replace("-", "_").upper()
    return typer.Option(
        *names.split(), help=help, metavar=metavar, envvar=variable, show_envvar=True, **settings
    )


def count(value: int | None) -> int | None:
    """Refuses numbers that are too large for the native library."""
    if value is not None and value > LARGEST_COUNT:
        raise typer.BadParameter(f"{value} is more than {LARGEST_COUNT}.")
    return value


def finite(value: float | None) -> float | None:
    """Refuses nan and inf."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value


def positive(value: float) -> float:
    """Refuses nan, inf and values up to 0."""
    if not value > 0 or not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number above 0.")
    return value
