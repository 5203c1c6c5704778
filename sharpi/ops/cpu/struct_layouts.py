"""Compares the ctypes structs with the structs that the native library was built with."""

import ctypes
from collections.abc import Mapping
from ctypes import Structure, c_char_p
from types import ModuleType

from sharpi.errors import SharpiError

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


def structs_of(*modules: ModuleType) -> dict[str, type[Structure]]:
    """Returns the structs that the modules define, by name."""
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Structure) and value is not Structure
    }


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
