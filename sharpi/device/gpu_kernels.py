"""GpuKernels: the kernels of one GPU, which NVRTC compiles through CuPy, and their launches."""

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sharpi.device.driver import CAPABILITY, launch_dependent
from sharpi.device.gpu_errors import GpuErrors, KernelError
from sharpi.device.launch import Argument, Kernel, Launch, Span
from sharpi.resources import kernels_folder


def defines(quant_type: str | None, size: int | None = None) -> tuple[str, ...]:
    """Returns the macros that restrict a .cu file to a quant type and to a size.

    "q4_k" names one type, "q4_k+q6_k" a kernel that reads matrices of two or three types. The size
    is one that the file tests with HAS_SIZE. None returns no macro, so that the file is compiled
    for all types, or for all sizes.
    """
    return *_types(quant_type), *(() if size is None else (f"ONLY_SIZE={size}",))


def _types(quant_type: str | None) -> tuple[str, ...]:
    match [] if quant_type is None else quant_type.upper().split("+"):
        case []:
            return ()
        case [one]:
            return (f"ONLY_{one}",)
        case several:
            names = ("FIRST_TYPE", "SECOND_TYPE", "THIRD_TYPE")
            return tuple(f"{name}={each}" for name, each in zip(names, several, strict=False))


def own_options(quant_type: str | None = None, size: int | None = None) -> tuple[str, ...]:
    """Returns sharpi's options; a quant type and a size compile only their entry points."""
    return ("-std=c++17", *(f"-D{each}" for each in defines(quant_type, size)))


_LOCAL_INCLUDE = re.compile(r'^\s*#include "([^"]+)"\s*$')


@cache
def kernel_source(name: str) -> str:
    """Returns the text of `<name>.cu`, with each local header inlined at its first include.

    The file may be in any folder of `kernels/cuda`. Raises FileNotFoundError if it does not exist.
    """
    folder = kernels_folder()
    path = _kernels(folder).get(name)
    if path is None:
        raise FileNotFoundError(f"{folder / 'cuda'} has no kernel {name}.cu")
    return "\n".join(_lines(path, folder, set()))


@cache
def waits_for_last_launch(name: str) -> bool:
    """Returns True if the kernels of `<name>.cu` wait for the preceding launch by themselves.

    They do so by calling `wait_for_last_launch` of launch_order.cuh.
    """
    return "wait_for_last_launch();" in kernel_source(name)


@cache
def _kernels(folder: Path) -> dict[str, Path]:
    """Returns the path of each .cu file under `kernels/cuda`, by name without suffix."""
    return {path.stem: path for path in (folder / "cuda").rglob("*.cu")}


def _lines(path: Path, folder: Path, seen: set[Path]) -> list[str]:
    seen.add(path)
    out = [f'#line 1 "{path.name}"']
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = _LOCAL_INCLUDE.match(line)
        if match is None:
            out.append("" if line.strip() == "#pragma once" else line)
            continue
        header = _find(match[1], path, folder)
        if header not in seen:
            out += _lines(header, folder, seen)
        out.append(f'#line {number + 1} "{path.name}"')
    return out


def _find(name: str, path: Path, folder: Path) -> Path:
    """Returns a header's path: beside the including file `path`, in `kernels/cuda` or `kernels`."""
    paths = (path.parent / name, folder / "cuda" / name)
    return next((path for path in paths if path.exists()), folder / name)


# A kernel has to set an attribute for more than 48 KB with its own shared memory, of which none has
# more than 46 KB.
_PLAIN_SHARED_BYTES = 2 << 10
_COMPILERS = 16  # threads; NVRTC compiles without Python's lock


class _Module(NamedTuple):
    """A compilation by NVRTC: a file's entry points for one quant type and size."""

    file: str
    quant_type: str | None
    size: int | None


class GpuKernels:
    """Compiles a kernel's module at its first launch, and launches on the current stream.

    From sm_90 on, launches that are marked as dependent may start early.
    """

    def __init__(self, cupy: Any, index: int, errors: GpuErrors, capability: int) -> None:
        self._cupy, self._index, self._errors = cupy, index, errors
        self._launches_early = capability >= CAPABILITY
        self._shared_bytes: dict[Kernel, int] = {}  # that launches of a kernel may have so far
        self._function = cache(self._compile)
        self._module = cache(self._compile_module)

    def launch(self, launch: Launch, stream: int) -> None:
        """Launches a kernel on the current stream, whose handle is `stream`.

        Raises DependentLaunchError if the driver refuses a dependent launch.
        """
        arguments = tuple(map(_as_passed, launch.arguments))
        function, size = self._function(launch.kernel), launch.shared_bytes
        self._allow_shared(function, launch)
        if launch.is_dependent and self._launches_early:
            address = function.kernel.ptr
            launch_dependent(address, launch.grid, launch.block, size, stream, arguments)
        else:
            function(launch.grid, (launch.block,), arguments, shared_mem=size)

    def _allow_shared(self, function: Any, launch: Launch) -> None:
        """Raises a kernel's limit of shared memory; never lowers it, as graphs may need it."""
        if launch.shared_bytes > self._shared_bytes.get(launch.kernel, _PLAIN_SHARED_BYTES):
            function.max_dynamic_shared_size_bytes = launch.shared_bytes
            self._shared_bytes[launch.kernel] = launch.shared_bytes

    def prepare(self, kernels: Iterable[Kernel]) -> None:
        """Compiles and loads kernels in parallel."""
        modules = set(map(_module_of, kernels))
        with ThreadPoolExecutor(_COMPILERS, "compile") as threads:
            for done in [threads.submit(self._prepare, each) for each in sorted(modules, key=str)]:
                done.result()

    def _prepare(self, module: _Module) -> None:
        """Compiles and loads one module; CuPy keeps what it compiled on disk."""
        try:
            with self._errors, self._cupy.cuda.Device(self._index):
                self._module(module).compile()
        except KernelError as error:
            error.file = module.file
            raise

    def _compile(self, kernel: Kernel) -> Any:
        return self._module(_module_of(kernel)).get_function(kernel.entry)

    def _compile_module(self, module: _Module) -> Any:
        options = own_options(module.quant_type, module.size)
        return self._cupy.RawModule(code=kernel_source(module.file), options=options)


def _module_of(kernel: Kernel) -> _Module:
    return _Module(kernel.file, kernel.quant_type, kernel.size)


def _as_passed(argument: Argument) -> np.generic:
    """Returns the argument as CuPy's launches expect it: a uint64 address, or the scalar itself."""
    if argument is None:
        return np.uint64(0)
    return np.uint64(argument.address) if isinstance(argument, Span) else argument
