"""The machine code of a shared library: its functions, their source files and their encodings."""

import hashlib
import pickle
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from build_cache import build_folder, built

# Address, first byte and mnemonic. Segment and address-size prefixes are left out; no other may
# stand before VEX and EVEX.
_INSTRUCTION = re.compile(
    r" *([0-9a-f]+):\t(?:(?:26|2e|36|3e|64|65|67) )*([0-9a-f]{2})[0-9a-f ]*\t(\S+)"
)
_VEX, _EVEX = {"c4", "c5"}, {"62"}  # in 64-bit mode these bytes mean nothing else
# What SSSE3 and SSE4.1 added to the baseline, by the beginnings of mnemonics.
_SSE41 = re.compile(
    r"pshufb|pmadd?ubsw|pabs[bwd]|psign|palignr|ph(add|sub|minpos)|pmulhrs|p?blend|pmov[sz]x|pmulld"
    r"|pmuldq|p(min|max)(sb|sd|uw|ud)|packusdw|p(ins|ext)r[bdq]|ptest|round[ps][sd]|insertps"
    r"|extractps|dpp[sd]|mpsadbw|movntdqa|pcmp(eq|gt)q"
)


@dataclass
class Function:
    """A symbol with code; `source` is None if other objects could bind to its name."""

    name: str
    source: str | None
    mnemonics: set[str] = field(default_factory=set)
    has_vex: bool = False
    has_evex: bool = False
    has_sse41: bool = False


@cache
def read_functions(library: Path) -> list[Function]:
    """Returns the functions of a library that has symbols, with the instructions of each.

    It takes seconds to disassemble the native library, so what was found is kept in a file.
    """
    texts = library.read_bytes() + Path(__file__).read_bytes()
    target = build_folder() / f"functions-{hashlib.sha256(texts).hexdigest()[:20]}.pickle"
    built(target, lambda path: path.write_bytes(pickle.dumps(_disassembled(library))))
    functions: list[Function] = pickle.loads(target.read_bytes())
    return functions


def _disassembled(library: Path) -> list[Function]:
    functions = _symbols(library)
    starts = sorted(functions)
    if not starts:
        raise ValueError(f"{library} has no symbol table; install.strip must stay off")
    at = 0
    used = [set[tuple[str, str]]() for _ in starts]
    for address, first, mnemonic in _instructions(library):
        while at + 1 < len(starts) and starts[at + 1] <= address:
            at += 1
        used[at].add((first, mnemonic))
    for start, instructions in zip(starts, used, strict=True):
        for first, mnemonic in instructions:
            _add(functions[start], first, mnemonic)
    return list(functions.values())


def initialisers(library: Path) -> list[str]:
    """Returns the functions that run when a library is loaded, without those of the C runtime."""
    names = [each.name for each in _symbols(library).values()]
    return [each for each in names if each.startswith(("_GLOBAL__sub_I", "__cxx_global"))]


def _add(function: Function, first: str, mnemonic: str) -> None:
    function.has_vex |= first in _VEX
    function.has_evex |= first in _EVEX
    if first in _VEX | _EVEX:
        function.mnemonics.add(mnemonic)
    elif _SSE41.match(mnemonic):
        function.has_sse41 = True


def _symbols(library: Path) -> dict[int, Function]:
    """Functions by address. Local symbols follow the name of their file; hidden ones have none."""
    functions: dict[int, Function] = {}
    source: str | None = None
    for line in _run("readelf", "-sW", str(library)):
        parts = line.split()
        if len(parts) < 7 or not parts[0].endswith(":"):
            continue
        kind, binding, name = parts[3], parts[4], " ".join(parts[7:])
        if kind == "FILE":
            source = name or None
        elif kind in ("FUNC", "IFUNC") and parts[6] != "UND" and int(parts[1], 16):
            local = source if binding == "LOCAL" else None
            functions.setdefault(int(parts[1], 16), Function(name, local))
    return functions


def _instructions(library: Path) -> Iterator[tuple[int, str, str]]:
    """The address, the first byte and the mnemonic of every instruction."""
    for line in _run("objdump", "-d", "-w", str(library)):
        if found := _INSTRUCTION.match(line):
            address, first, mnemonic = found.groups()
            yield int(address, 16), first, mnemonic


def _run(*command: str) -> Iterator[str]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield from process.stdout
    if process.returncode:
        raise OSError(f"{command[0]} failed on {command[-1]}")
