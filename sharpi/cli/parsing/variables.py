"""The environment variables that give options their values."""

import os
from typing import Any


def variables_of(parameter: Any) -> tuple[str, ...]:
    """Returns the variables of a command's parameter; the first one is the documented one."""
    names = parameter.envvar
    return (names,) if isinstance(names, str) else tuple(names or ())


def given_variable(parameter: Any) -> str:
    """Returns the variable that gives a parameter its value; empty variables give none."""
    names = variables_of(parameter)
    return next((name for name in names if os.environ.get(name)), names[0])
