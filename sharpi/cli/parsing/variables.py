"""Finds the environment variables that set options."""

import os
from typing import Any


def variables_of(parameter: Any) -> tuple[str, ...]:
    """Returns the environment variables of a parameter; the first one is documented."""
    names = parameter.envvar
    return (names,) if isinstance(names, str) else tuple(names or ())


def given_variable(parameter: Any) -> str:
    """Returns the first environment variable of a parameter that is set and not empty.

    Without one, returns the documented variable.
    """
    names = variables_of(parameter)
    return next((name for name in names if os.environ.get(name)), names[0])
