"""The variables of the environment that give options their values."""

import os
from typing import Any


def variables_of(parameter: Any) -> tuple[str, ...]:
    """Returns the variables of a parameter of a command, the first one as documented."""
    names = parameter.envvar
    return (names,) if isinstance(names, str) else tuple(names or ())


def given_variable(parameter: Any) -> str:
    """Returns the variable that gives a parameter its value; an empty one gives none."""
    names = variables_of(parameter)
    return next((name for name in names if os.environ.get(name)), names[0])
