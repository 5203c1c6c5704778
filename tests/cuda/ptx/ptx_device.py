"""A device whose kernels run as the PTX that NVRTC makes of them."""

import ctypes
import os
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from build_cache import build_folder, built, digest
from cpu_device import CpuDevice, launch_regions
from nvrtc import Toolkit, compile_options, ptx_text, toolkits, version
from ptx_engine import Block, PtxFault, PtxKernel, Region

from sharpi.device.driver import CAPABILITY
from sharpi.device.gpu_kernels import kernel_source
from sharpi.device.launch import Argument, Kernel, Launch, Span

_SCALAR_BYTES = {np.int32: 4, np.int64: 8, np.float32: 4}
Edit: TypeAlias = Callable[[str], str]


def _as_it_is(text: str) -> str:
    return text


class PtxDevice(CpuDevice):
    """A GPU of an architecture, whose kernels NVRTC compiles and the engine of this folder runs.

    `edit` changes their PTX, to see that a fault is found. `executed`: the instructions of each
    entry point so far, those of a block's threads together.
    """

    def __init__(self, toolkit: Toolkit, architecture: int, edit: Edit = _as_it_is) -> None:
        super().__init__(check=True, name=f"PTX of sm_{architecture}")
        self._toolkit, self._architecture, self._edit = toolkit, architecture, edit
        self.executed: dict[str, int] = {}

    def launch(self, launch: Launch) -> None:
        text = self._edit(kept_ptx(self._toolkit, launch.kernel, self._architecture))
        kernel = _kernel(text, launch.kernel.entry, launch.shared_bytes)
        begins_early = launch.is_dependent and self._architecture >= CAPABILITY
        block = Block(launch.grid, launch.block, launch.shared_bytes, begins_early)
        arguments = [_packed(each) for each in launch.arguments]
        count = kernel.run(block, arguments, list(_regions(launch)))
        entry = launch.kernel.entry
        self.executed[entry] = self.executed.get(entry, 0) + count
        note_run(launch.kernel.file, self._architecture)


def note_run(file: str, architecture: int) -> None:
    """Appends a kernel that has run to the file that SHARPI_PTX_RUNS names, for `ptx_runs.tsv`."""
    if "SHARPI_PTX_RUNS" in os.environ:
        with Path(os.environ["SHARPI_PTX_RUNS"]).open("a", encoding="utf-8") as runs:
            runs.write(f"{file}\tsm_{architecture}\n")


def _regions(launch: Launch) -> Iterator[Region]:
    for region in launch_regions(launch):
        yield Region(region.begin, region.end, region.argument, region.writable)


def _packed(argument: Argument) -> bytes:
    if argument is None or isinstance(argument, Span):
        return bytes(ctypes.c_uint64(0 if argument is None else argument.address))
    if type(argument) not in _SCALAR_BYTES:
        raise PtxFault(f"an argument is {type(argument).__name__}")
    return np.asarray(argument).tobytes()


@lru_cache(32)  # a large one takes megabytes
def _kernel(text: str, entry: str, shared_bytes: int) -> PtxKernel:
    return PtxKernel(text, entry, shared_bytes)


@lru_cache(16)
def kept_ptx(toolkit: Toolkit, kernel: Kernel, architecture: int) -> str:
    """Returns the PTX of a kernel's module as a GPU of the architecture gets it; keeps it."""
    source = kernel_source(kernel.file)
    options = compile_options(architecture, kernel.quant_type, kernel.size)
    key = digest(version(toolkit), source, *options)
    path = built(
        build_folder() / f"ptx-{key}.ptx",
        lambda target: target.write_text(ptx_text(toolkit, source, options), encoding="utf-8"),
    )
    return path.read_text(encoding="utf-8")


def ptx_device(architecture: int, edit: Edit = _as_it_is) -> PtxDevice:
    """Opens the device with the newest NVRTC."""
    return PtxDevice(installed(), architecture, edit)


def installed() -> Toolkit:
    """Returns the newest NVRTC; without one the test is skipped and counted."""
    found = toolkits()
    if not found:
        pytest.skip("NVRTC is not installed: pip install nvidia-cuda-nvrtc nvidia-cuda-runtime")
    return found[0]
