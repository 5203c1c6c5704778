"""NVRTC without a GPU: compiles a kernel for an architecture, and reports its resource usage."""

import ctypes
import hashlib
import importlib.util
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from build_cache import build_folder, built, digest
from sass import codes

from sharpi.device.gpu_kernels import own_options

_FUNCTION = re.compile(
    r"Function properties for (?P<entry>\w+)\n"
    r"\D*(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores,"
    r" (?P<loads>\d+) bytes spill loads\n"
    r"ptxas info\s*: Used (?P<registers>\d+) registers(?P<rest>.*)"
)
_SHARED = re.compile(r"(\d+) bytes smem")
_BLOCK = re.compile(r"\.entry (\w+)\([^)]*\)\s*\.maxntid (\d+)")


def compile_options(
    architecture: int, quant_type: str | None = None, size: int | None = None
) -> tuple[str, ...]:
    """Returns all options that change the code for `sm_<architecture>`.

    CuPy 13.6 to 14.2 (`cupy/cuda/compiler.py`) adds the last three, and include folders. Kernels
    need only the folder with `cuda_fp16.h`.
    """
    added = ("-ftz=true", f"-arch=sm_{architecture}", "--device-as-default-execution-space")
    return own_options(quant_type, size) + added


class CompileError(AssertionError):
    """NVRTC refused; the message is its log."""


@dataclass(frozen=True)
class Toolkit:
    """NVRTC of one CUDA version, with its headers, as NVIDIA's wheels install them."""

    major: int
    library: Path
    include: Path


@dataclass(frozen=True)
class Usage:
    """The resource usage of an entry point; `block` is its `__launch_bounds__`, 0 without.

    The fields from `instructions` on are those of sass.Code.
    """

    entry: str
    block: int
    registers: int
    shared_bytes: int
    stack_bytes: int
    spilled_bytes: int
    instructions: int = 0
    around: tuple[int, ...] = ()
    innermost: tuple[int, ...] = ()
    waits: bool = False
    accesses_before: int = 0
    products: tuple[int, ...] = ()
    loads_ahead: tuple[int, ...] = ()


def toolkits() -> list[Toolkit]:
    """Returns the toolkits that are installed as Python packages, newest first."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(root) for root in (spec.submodule_search_locations or ())] if spec else []
    return [toolkit for root in roots for toolkit in _installed(root)]


def usages(toolkit: Toolkit, source: str, options: tuple[str, ...]) -> list[Usage]:
    """Returns the resource usage of every entry point, kept for the next time.

    Raises CompileError.
    """

    def compile_to(path: Path) -> None:
        found = _nvrtc(toolkit).compile(source, options)
        path.write_text(json.dumps([vars(usage) for usage in found]), encoding="utf-8")

    key = digest(_digest_of_this_file(), _nvrtc(toolkit).version, source, *options)
    kept = built(build_folder() / f"usages-{key}.json", compile_to)
    found = json.loads(kept.read_text())
    return [Usage(**usage) for usage in found]


def ptx_text(toolkit: Toolkit, source: str, options: tuple[str, ...]) -> str:
    """Returns the PTX of a source; raises CompileError.

    With a virtual architecture in place of the real one NVRTC stops there, which is faster.
    """
    virtual = tuple(option.replace("-arch=sm_", "-arch=compute_") for option in options)
    return _nvrtc(toolkit).ptx(source, virtual)


def version(toolkit: Toolkit) -> str:
    """Returns the version of a toolkit's NVRTC."""
    return _nvrtc(toolkit).version


class _Nvrtc:
    def __init__(self, toolkit: Toolkit) -> None:
        for builtins in toolkit.library.parent.glob("libnvrtc-builtins.so.*"):
            ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)  # it is not found from beside NVRTC
        self._library = ctypes.CDLL(str(toolkit.library))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        self._include = toolkit.include
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("Version", ctypes.byref(major), ctypes.byref(minor))
        self.version = f"{major.value}.{minor.value}"

    def compile(self, source: str, options: tuple[str, ...]) -> list[Usage]:
        with self._compiled(source, (*options, "--ptxas-options=-v")) as (program, log):
            found = codes(self._bytes("CUBIN", program), _architecture(options))
            return [
                replace(usage, **vars(found[usage.entry]))
                for usage in _parse(log, self._text("PTX", program))
            ]

    def ptx(self, source: str, options: tuple[str, ...]) -> str:
        with self._compiled(source, options) as (program, _):
            return self._text("PTX", program)

    @contextmanager
    def _compiled(
        self, source: str, options: tuple[str, ...]
    ) -> Iterator[tuple[ctypes.c_void_p, str]]:
        program = ctypes.c_void_p()
        nothing = (0, None, None)
        self._call("CreateProgram", ctypes.byref(program), source.encode(), b"kernel.cu", *nothing)
        try:
            given = [o.encode() for o in (*options, f"-I{self._include}")]
            refused = self._library.nvrtcCompileProgram(
                program, len(given), (ctypes.c_char_p * len(given))(*given)
            )
            log = self._text("ProgramLog", program)
            if refused:
                raise CompileError(log)
            yield program, log
        finally:
            self._call("DestroyProgram", ctypes.byref(program))

    def _text(self, what: str, program: ctypes.c_void_p) -> str:
        return self._bytes(what, program).partition(b"\0")[0].decode()

    def _bytes(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"Get{what}Size", program, ctypes.byref(size))
        found = ctypes.create_string_buffer(size.value)
        self._call(f"Get{what}", program, found)
        return found.raw

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, f"nvrtc{name}")(*arguments)
        if status:
            raise CompileError(f"nvrtc{name}: {self._library.nvrtcGetErrorString(status)}")


def _installed(root: Path) -> Iterator[Toolkit]:
    for library, include in (
        (root / "cu13/lib/libnvrtc.so.13", root / "cu13/include"),
        (root / "cuda_nvrtc/lib/libnvrtc.so.12", root / "cuda_runtime/include"),
    ):
        if library.exists() and (include / "cuda_fp16.h").exists():
            yield Toolkit(int(library.suffix[1:]), library, include)


def _architecture(options: tuple[str, ...]) -> int:
    return next(int(o.removeprefix("-arch=sm_")) for o in options if o.startswith("-arch="))


def _parse(log: str, ptx: str) -> Iterator[Usage]:
    blocks = dict(_BLOCK.findall(ptx))
    for match in _FUNCTION.finditer(log):
        entry, shared = match["entry"], _SHARED.search(match["rest"])
        yield Usage(
            entry,
            int(blocks.get(entry, 0)),
            int(match["registers"]),
            int(shared[1]) if shared else 0,
            int(match["stack"]),
            int(match["stores"]) + int(match["loads"]),
        )


@cache
def _nvrtc(toolkit: Toolkit) -> _Nvrtc:
    return _Nvrtc(toolkit)


@cache
def _digest_of_this_file() -> str:
    own = [Path(__file__), Path(__file__).with_name("sass.py")]
    return hashlib.sha256(b"".join(path.read_bytes() for path in own)).hexdigest()
