"""Packages that are slow to import, and that few of the workers need which collect all tests."""

import gc
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import pytest


class OnUse(NamedTuple):
    """A package that is imported when one of its names is first used.

    Garbage collections then do not scan its many objects in workers that never use it.
    """

    package: str

    def __getattr__(self, name: str) -> Any:
        # Pytest asks all that a module has for such names, to see whether it is a test or fixture.
        if name.startswith("_"):
            raise AttributeError(name)
        is_new = self.package not in sys.modules
        value = getattr(import_module(self.package), name)
        if is_new:
            gc.freeze()
        return value


def needs(package: str) -> pytest.MarkDecorator:
    """Skips a test where a package is not installed; the package is not imported for that."""
    return pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed")
