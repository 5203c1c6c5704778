"""The engine that runs PTX: built with g++ from engine/*.cpp, called through ctypes."""

import ctypes
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from build_cache import build_folder, built, digest
from ptx_module import Module, PtxError
from ptx_program import Program, lower

FOLDER = Path(__file__).parent / "engine"
# Roundings are set while it runs, and integers wrap.
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fwrapv", "-frounding-math", "-Wall", "-Wextra", "-Werror")
OWN = -2  # in place of an argument's number: a variable of the module


class PtxFault(AssertionError):
    """A kernel did something that a GPU forbids or leaves undefined."""


@dataclass(frozen=True)
class Block:
    """The shape of a launch: blocks, threads of each, and bytes of dynamic shared memory."""

    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int = 0
    is_dependent: bool = False


class Region(ctypes.Structure):
    """Bytes of global memory that a launch may touch."""

    _fields_ = (
        ("begin", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("argument", ctypes.c_int32),
        ("writable", ctypes.c_uint32),
    )


class _Pair(ctypes.Structure):
    _fields_ = (("one", ctypes.c_uint64), ("other", ctypes.c_uint64))


class _Specials(ctypes.Structure):
    _fields_ = (
        ("tid", ctypes.c_int32 * 3),
        ("ntid", ctypes.c_int32 * 3),
        ("ctaid", ctypes.c_int32 * 3),
        ("nctaid", ctypes.c_int32 * 3),
        ("laneid", ctypes.c_int32),
        ("warpid", ctypes.c_int32),
    )


class _Request(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32),
        ("num_rows", ctypes.c_int32),
        ("is_dependent", ctypes.c_int32),
        ("shared_bytes", ctypes.c_uint64),
        ("local_bytes", ctypes.c_uint64),
        ("num_params", ctypes.c_uint64),
        ("num_variables", ctypes.c_uint64),
        ("num_constants", ctypes.c_uint64),
        ("num_regions", ctypes.c_uint64),
        ("program", ctypes.c_void_p),
        ("params", ctypes.c_char_p),
        ("variables", ctypes.POINTER(_Pair)),
        ("constants", ctypes.POINTER(_Pair)),
        ("regions", ctypes.POINTER(Region)),
        ("specials", ctypes.POINTER(_Specials)),
        ("executed", ctypes.c_uint64),
        ("pc", ctypes.c_int32),
        ("thread", ctypes.c_int32),
        ("at_block", ctypes.c_uint32 * 3),
        ("what", ctypes.c_char * 256),
    )


class PtxKernel:
    """An entry point of a module, ready to run with so much dynamic shared memory."""

    def __init__(self, text: str, entry: str, dynamic_bytes: int = 0) -> None:
        module = _module(text)
        self._variables = {
            variable.name: np.frombuffer(variable.contents, np.uint8).copy()
            for variable in module.variables
            if variable.space in ("global", "const") and variable.num_bytes
        }
        addresses = {name: array.ctypes.data for name, array in self._variables.items()}
        self._program: Program = lower(module, entry, dynamic_bytes, addresses, operation)
        self._code = np.array(self._program.code, np.int32)
        self.param_bytes = [param.num_bytes for param in self._program.entry.params]

    def run(self, block: Block, arguments: Sequence[bytes], regions: Sequence[Region]) -> int:
        """Runs all blocks, one after the other; returns how many instructions they took.

        Each argument has the bytes of its parameter. Raises PtxFault.
        """
        request = self._request(block, self._packed(arguments), [*regions, *self._own_regions()])
        _library().ptx_launch(ctypes.byref(request))
        if request.what:
            raise PtxFault(self._worded(request))
        return int(request.executed)

    def _packed(self, arguments: Sequence[bytes]) -> bytes:
        if [len(each) for each in arguments] != self.param_bytes:
            given = [len(each) for each in arguments]
            raise PtxFault(f"arguments of {given} bytes, the kernel takes {self.param_bytes}")
        packed = bytearray(self._program.param_bytes)
        for offset, value in zip(self._program.param_offsets, arguments, strict=True):
            packed[offset : offset + len(value)] = value
        return bytes(packed)

    def _own_regions(self) -> list[Region]:
        arrays = self._variables.values()
        return [Region(a.ctypes.data, a.ctypes.data + a.nbytes, OWN, False) for a in arrays]

    def _request(self, block: Block, params: bytes, regions: list[Region]) -> _Request:
        program = self._program
        shared = [_Pair(each.offset, each.num_bytes) for each in program.shared]
        constants = [_Pair(row, value) for value, row in program.constants.items()]
        return _Request(
            grid=block.grid,
            block=block.threads,
            num_rows=program.num_rows,
            is_dependent=block.is_dependent,
            shared_bytes=program.shared_bytes,
            local_bytes=program.local_bytes,
            num_params=len(params),
            num_variables=len(shared),
            num_constants=len(constants),
            num_regions=len(regions),
            program=self._code.ctypes.data,
            params=params,
            variables=(_Pair * len(shared))(*shared),
            constants=(_Pair * len(constants))(*constants),
            regions=(Region * len(regions))(*regions),
            specials=ctypes.pointer(self._specials()),
        )

    def _specials(self) -> _Specials:
        rows = self._program.specials

        def three(name: str) -> Any:
            return (ctypes.c_int32 * 3)(*(rows.get(f"{name}.{axis}", -1) for axis in "xyz"))

        axes = [three(name) for name in ("tid", "ntid", "ctaid", "nctaid")]
        return _Specials(*axes, rows.get("laneid", -1), rows.get("warpid", -1))

    def _worded(self, request: _Request) -> str:
        entry = self._program.entry
        text = entry.instructions[request.pc].text
        where = f"block {tuple(request.at_block)}, thread {request.thread}"
        return f"{entry.name}: {request.what.decode()}, at `{text}`, {where}"


@lru_cache(4)
def _module(text: str) -> Module:
    return Module(text)


@cache
def operation(opcode: str) -> int:
    """Returns the engine's number of an opcode; raises PtxError if it knows none."""
    number = int(_library().ptx_operation(opcode.encode()))
    if number < 0:
        raise PtxError(f"unknown instruction {opcode}")
    return number


@cache
def _library() -> ctypes.CDLL:
    sources = sorted(FOLDER.glob("*.*"))
    text = "\0".join(path.read_text(encoding="utf-8") for path in sources)
    return ctypes.CDLL(str(built(build_folder() / f"libptx-{digest(text, *FLAGS)}.so", _build)))


def _build(target: Path) -> None:
    sources = map(str, sorted(FOLDER.glob("*.cpp")))
    command = ["g++", *FLAGS, "-shared", *sources, "-o", str(target)]
    subprocess.run(command, check=True, capture_output=True)
