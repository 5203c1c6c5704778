"""Opens the compiled CPU library, and declares the types of its functions.

The library has a plain C interface and is called through ctypes, so one build serves every Python.
"""

import ctypes
from collections.abc import Callable, Mapping
from ctypes import Structure, c_char_p
from functools import cache
from typing import Any

from sharpi.errors import SharpiError
from sharpi.resources import is_checkout, native_library
from sharpi.system.process import Closing

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


class NativeObject(Closing):
    """An object of the library, named `what`, which `free` frees; raises MemoryError without it."""

    def __init__(self, address: int | None, free: Callable[[int], object], what: str) -> None:
        if not address:
            raise MemoryError(f"no memory for the {what}")
        self._address: int | None = address
        self._free, self._what = free, what

    @property
    def handle(self) -> int:
        """The address of the object; raises ValueError after `close`."""
        if self._address is None:
            raise ValueError(f"the {self._what} is closed")
        return self._address

    def close(self) -> None:
        """Frees the object; a second call does nothing."""
        if self._address is not None:
            self._free(self._address)
            self._address = None


Offsets = dict[str, int]


def check_layouts(
    library: ctypes.CDLL, function: str, structs: Mapping[str, type[Structure]]
) -> None:
    """Raises SharpiError if a ctypes struct differs from the C++ struct of the same name.

    It compares sizes, field names and field offsets. `function` names the library's function that
    reports them (kernels/cpu/runtime/layouts.h).
    """
    theirs = _layouts(library, function)
    for name, struct in structs.items():
        if theirs.get(name) != layout_of(struct):
            raise SharpiError(
                f"the native library is of another version ({name} differs); run `make run` or"
                " `pip install .` again"
            )


def layout_of(struct: type[Structure]) -> Offsets:
    """Returns the offset of each field in bytes, and under the key "" the size of the struct."""
    names = [field[0] for field in struct._fields_]
    return {"": ctypes.sizeof(struct)} | {name: getattr(struct, name).offset for name in names}


def _layouts(library: ctypes.CDLL, function: str) -> dict[str, Offsets]:
    """Reads the layouts that the library reports; an older library reports none."""
    report = getattr(library, function, None)
    if report is None:
        return {}
    report.restype = c_char_p
    lines = [line.split() for line in bytes(report()).decode().splitlines()]
    return {
        name: {"": int(size)} | dict(zip(fields[::2], map(int, fields[1::2]), strict=True))
        for name, size, *fields in lines
    }
