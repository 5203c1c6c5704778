"""Builds kernels for the CPU: the product's `.cu` text over the headers in shim/, with g++.

A build is a shared object for each (file, macros, checks), kept under a hash of everything that
went into it. It has no lines: where one is to be named, the code is built again with them.
"""

import ctypes
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import IO

from build_cache import build_folder, built, digest

SHIM = Path(__file__).parent / "shim"
CHECKS = (
    *("-fsanitize=thread", "-fsanitize=alignment"),
    *("--param", "tsan-instrument-func-entry-exit=0"),  # calls that the engine has no use for
)
UNCHECKED = ("-DCUDA_ON_CPU_UNCHECKED",)
LINES = ("-g1", "-gdwarf-4")  # a third of a build's time
FLAGS = (
    "-std=c++17",
    "-fPIC",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Werror",
)
# -Og builds in three quarters of -O1's time, but more is lost where models run.
KERNEL_FLAGS = (
    *FLAGS,
    "-O1",
    "-fno-exceptions",
    "-Wno-unknown-pragmas",
    "-Wno-unused-parameter",
)
# The engine answers the sanitizers' calls itself, so their libraries stay out.
NO_SANITIZER_LIBRARIES = ("-nostdlib", "-lm", "-lc", "-lgcc")
_ENTRY = re.compile(r"CUDA_ON_CPU_ENTRY\s+void\s+(\w+)\s*\(")


class BuildError(RuntimeError):
    """g++ failed; the message is its output."""


@cache
def build_engine() -> Path:
    """The library that runs threads and checks accesses."""
    target = build_folder() / f"libengine-{digest(_shim_text(), *FLAGS)}.so"
    sources = map(str, sorted(SHIM.glob("engine/*.cpp")))
    return built(target, partial(_gxx, [*FLAGS, "-O2", "-flto", "-shared", *sources]))


def build_kernels(
    source: str, defines: tuple[str, ...], check: bool, has_lines: bool = False
) -> Path:
    """A shared object with `launch_<entry>` and `signature_<entry>` for each entry point."""
    names = tuple(f"-D{name}" for name in defines)
    flags = (
        *KERNEL_FLAGS,
        *names,
        *(CHECKS if check else UNCHECKED),
        *(LINES if has_lines else ()),
    )
    engine = build_engine()
    target = build_folder() / f"kernels-{digest(source, engine.name, *flags)}.so"
    link = [*(NO_SANITIZER_LIBRARIES if check else ()), str(engine)]
    return built(target, partial(_build_kernels, source, flags, link))


def _build_kernels(source: str, flags: tuple[str, ...], link: list[str], target: Path) -> None:
    with _source_file(source) as file:
        exports = "".join(f"\nCUDA_ON_CPU_EXPORT({name})" for name in _entries(file.name, flags))
        file.write(exports + "\n")
        file.flush()
        _gxx([*flags, f"-I{SHIM}", "-shared", file.name, *link], target)


@cache
def engine_library() -> ctypes.CDLL:
    """The engine, loaded once for all kernels."""
    return ctypes.CDLL(str(build_engine()), ctypes.RTLD_GLOBAL)


def source_line(library: Path, offset: int) -> str:
    """`file:line` of an instruction, outwards through what was inlined."""
    command = ["addr2line", "-i", "-e", str(library), hex(offset)]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return " <- ".join(Path(line).name for line in lines if ":" in line)


def entry_points(source: str, defines: tuple[str, ...]) -> list[str]:
    """Returns the names of a source's entry points, sorted."""
    with _source_file(source) as file:
        return _entries(file.name, (*KERNEL_FLAGS, *(f"-D{name}" for name in defines)))


@contextmanager
def _source_file(source: str) -> Iterator[IO[str]]:
    """Yields a temporary file with a kernel's source, which may be appended to."""
    with tempfile.NamedTemporaryFile("w", suffix=".cpp") as file:
        file.write(f'#include "cuda_on_cpu.h"\n{source}\n')
        file.flush()
        yield file


def _entries(path: str, flags: tuple[str, ...]) -> list[str]:
    """Returns the names after __global__ in the preprocessed source."""
    command = ["g++", *flags, f"-I{SHIM}", "-E", "-P", "-DCUDA_ON_CPU_LIST_ENTRIES", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(done.stderr)
    return sorted(set(_ENTRY.findall(done.stdout)))


def _gxx(arguments: list[str], target: Path) -> None:
    command = ["g++", *arguments, "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(done.stderr)


@cache
def _shim_text() -> str:
    return "\0".join(path.read_text() for path in sorted(SHIM.glob("**/*.*")))
