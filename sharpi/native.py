"""Opens the compiled CPU library, and declares the types of its functions.

The library has a plain C interface and is called through ctypes, so one build serves every Python.
"""

import ctypes
from collections.abc import Mapping
from functools import cache
from typing import Any

from sharpi.errors import SharpiError
from sharpi.resources import is_checkout, native_library

# The type of the result (None for void), and the list of the arguments' types.
Signature = tuple[Any, Any]


@cache
def open_library() -> ctypes.CDLL:
    """Opens the library once per process; raises SharpiError if it is missing or broken."""
    try:
        return ctypes.CDLL(str(native_library()))
    except OSError as error:
        raise SharpiError(
            f"the native library is missing or broken ({error}); {_advice()}"
        ) from error


def _advice() -> str:
    if is_checkout():
        return "run `make run` or `pip install -e .`"
    return "run `pip install --force-reinstall sharpi`"


def declare(library: ctypes.CDLL, signatures: Mapping[str, Signature]) -> ctypes.CDLL:
    """Sets result and argument types of the named functions, and returns the library."""
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
