"""Compiles every kernel as the engine does, in parallel; CuPy caches the results on disk."""

import argparse
import multiprocessing
import os
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

from gpu.check_step import Findings
from gpu.device import add_tests

from sharpi.resources import kernels_folder

_MOST_PROCESSES = 12  # each has a CUDA context, half a GB of the GPU's memory
_ONLY = re.compile(r"\bONLY_(\w+)")
Unit = tuple[str, str | None]


def main() -> None:
    """Parses the command line, compiles all kernels, and reports those that fail."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    findings, start, units = Findings(), time.perf_counter(), all_units()
    processes = min(_MOST_PROCESSES, len(os.sched_getaffinity(0)))
    context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    with ProcessPoolExecutor(processes, context) as pool:
        for unit, problem in zip(units, pool.map(compile_one, units), strict=True):
            if problem:
                findings.failures.append(f"{unit[0]} {unit[1] or ''}: {problem}")
    findings.figures = {"modules": len(units), "seconds": time.perf_counter() - start}
    sys.exit(findings.finish(options.json))


def all_units() -> list[Unit]:
    """Returns pairs of a kernel file and one of its quant types, for all files and types."""
    add_tests("cuda/compiled")
    from nvrtc_jobs import ARCHITECTURES, jobs

    units = [(job.file, job.quant_type) for job in jobs(ARCHITECTURES[0], 0, 1, every_one=True)]
    return [(file, t) for file, quant_type in units for t in _variants(file, quant_type)]


def _variants(file: str, quant_type: str | None) -> list[str | None]:
    """Returns the types to compile a file for; [None] if it has none.

    A file may list types in macros ONLY_*, such as the types of the KV cache.
    """
    if quant_type is not None or "quant_types.cuh" in _text(file):
        return [quant_type]
    return [name.lower() for name in sorted(set(_ONLY.findall(_text(file))))] or [None]


def _text(file: str) -> str:
    [path] = (kernels_folder() / "cuda").rglob(f"{file}.cu")
    return path.read_text(encoding="utf-8")


def compile_one(unit: Unit) -> str | None:
    """Compiles a kernel file as `CudaDevice` does; returns the error message, or None."""
    import cupy

    from sharpi.device.kernel_source import kernel_source
    from sharpi.device.nvrtc import own_options

    file, quant_type = unit
    try:
        cupy.RawModule(code=kernel_source(file), options=own_options(quant_type)).compile()
    except Exception as error:  # any error of NVRTC or the driver
        return " ".join(str(error).split())[:300]
    return None


if __name__ == "__main__":
    main()
