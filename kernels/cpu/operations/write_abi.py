"""Writes sharpi/ops/cpu/abi.py from the headers: the C structs and enumerations of the ABI.

`make abi` runs it; a test fails where the module is stale. It reads what these headers need:
fields of fixed size, pointers, arrays, other structs, and enumerations with their numbers.
"""

import re
from collections.abc import Iterator
from pathlib import Path

CPU = Path(__file__).resolve().parents[1]
TARGET = CPU.parents[1] / "sharpi" / "ops" / "cpu" / "abi.py"

# Each header with what is taken from it, in the order of the module; None: all of its structs.
HEADERS: dict[str, tuple[str, ...] | None] = {
    "runtime/stage.h": ("Rows", "Step"),
    "threads/thread_place.h": ("ThreadPlace",),
    "runtime/program.h": ("PageSpan",),
    "attention/kv_pages.h": ("KvLayer",),
    "operations/ops.h": None,
    "operations/recurrent.h": ("ConvolutionParams", "DeltaNetParams", "Mamba2Params"),
}
RENAMED = {name: f"{name}Params" for name in ("Matrix", "KvLayer", "StackedMatrix")}
ENUMS = ("OpKind", "Rows")  # other enumerations are numbers to Python
# Structs that Python fills with arrays: pointers to integers and to pointers keep their types.
FILLED = ("Step", "ThreadPlace")

COLUMNS, INDENT = 100, " " * 8
NUMBERS = {
    "int32_t": "c_int32",
    "int64_t": "c_int64",
    "uint64_t": "c_uint64",
    "float": "c_float",
}
HEAD = '''"""The C structs of kernels/cpu/operations/ops.h and of the headers beside it, as ctypes structures.

`make abi` writes this file from the headers.
"""

from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_uint64, c_void_p
from enum import IntEnum'''

_DECLARED = re.compile(r"(enum class|struct) (\w+)(?: : \w+)? \{(.*?)\n?\};", re.DOTALL)
_METHODS = re.compile(r"(?<=;)[^;(]*\(.*", re.DOTALL)  # they come after the fields
_CONSTANT = re.compile(r"constexpr int k(\w+) = (\d+);")


def module() -> str:
    """Returns the text of the module."""
    texts = {header: _without_comments((CPU / header).read_text()) for header in HEADERS}
    constants = dict(_CONSTANT.findall(texts["operations/ops.h"]))
    enums = {
        name
        for text in texts.values()
        for kind, name, _ in _DECLARED.findall(text)
        if kind != "struct"
    }
    parts = [
        HEAD
        + "\n\n"
        + "".join(f"{_capitals(name)} = {number}\n" for name, number in constants.items())
    ]
    for header, names in HEADERS.items():
        for kind, name, body in _DECLARED.findall(texts[header]):
            if kind == "struct" and (names is None or name in names):
                parts.append(_struct(name, body, enums))
            elif name in ENUMS:
                parts.append(_enum(name, body))
    return "\n\n".join(part.rstrip("\n") + "\n" for part in parts)


def _without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*", "", text)


def _enum(name: str, body: str) -> str:
    members = re.findall(r"(\w+) = (\d+)", body)
    lines = [f"    {_capitals(member)} = {number}\n" for member, number in members]
    return f"class {name}(IntEnum):\n" + "".join(lines)


def _struct(name: str, body: str, enums: set[str]) -> str:
    fields = dict(_fields(_METHODS.sub("", body), enums, is_filled=name in FILLED))
    pairs = [f'("{field}", {kind})' for field, kind in fields.items()]
    head, line = f"class {_renamed(name)}(Structure):\n    _fields_ = (", ", ".join(pairs)
    if len(line) <= COLUMNS - len("    _fields_ = ()"):
        return f"{head}{line})\n"
    lines = [""]
    for pair in pairs:
        if len(lines[-1]) + len(pair) > COLUMNS - len(" ,"):
            lines.append("")
        lines[-1] += f"{' ' if lines[-1] else INDENT}{pair},"
    return "\n".join((head, *lines, "    )  # fmt: skip\n"))


def _fields(body: str, enums: set[str], *, is_filled: bool) -> Iterator[tuple[str, str]]:
    """Yields the name and the ctypes type of each field."""
    for declaration in filter(None, (" ".join(text.split()) for text in body.split(";"))):
        found = re.fullmatch(r"(?:const )?(\w+)((?: ?\* ?(?:const)?)*) ?(\w.*)", declaration)
        if found is None:
            raise ValueError(f"cannot read {declaration!r}")
        base, pointers, names = found.groups()
        kind = _type(base, pointers.count("*"), enums, is_filled=is_filled)
        for declared in names.split(", "):
            name, _, count = declared.rstrip("]").partition("[")
            size = count if count.isdigit() else _capitals(count.removeprefix("k"))
            yield name, f"{kind} * {size}" if count else kind


def _type(base: str, pointers: int, enums: set[str], *, is_filled: bool) -> str:
    if pointers and not is_filled:
        return "c_void_p"
    if pointers:
        return "POINTER(c_void_p)" if pointers > 1 else f"POINTER({NUMBERS[base]})"
    return "c_int32" if base in enums else NUMBERS.get(base, _renamed(base))


def _renamed(name: str) -> str:
    return RENAMED.get(name, name)


def _capitals(name: str) -> str:
    """Returns RmsNorm as RMS_NORM."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


if __name__ == "__main__":
    TARGET.write_text(module())
