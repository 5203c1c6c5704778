"""Compiles every kernel as the engine does, in parallel; CuPy caches the results on disk."""

import argparse
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

from gpu.check_step import Findings
from gpu.engines import add_tests

_MOST_PROCESSES = 12  # each has a CUDA context, half a GB of the GPU's memory
Unit = tuple[str, str | None, int | None]


def main() -> None:
    """Parses the command line, compiles all kernels, and reports those that fail."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=55, help="after which no result counts")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    findings, start, units = Findings(), time.perf_counter(), all_units()
    processes = min(_MOST_PROCESSES, len(os.sched_getaffinity(0)))
    context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    with ProcessPoolExecutor(processes, context) as pool:
        compiled = {pool.submit(compile_one, unit): unit for unit in units}
        try:
            for count, done in enumerate(as_completed(compiled, options.seconds), 1):
                if problem := done.result():
                    name = " ".join(str(e) for e in compiled[done] if e)
                    findings.failures.append(f"{name}: {problem}")
                findings.figures = {"modules": count, "seconds": time.perf_counter() - start}
                findings.save(options.json)
        except TimeoutError:
            findings.notes.append(f"{len(units)} modules in all, of which time was left for some")
            pool.shutdown(wait=False, cancel_futures=True)
    sys.exit(findings.finish(options.json))


def all_units() -> list[Unit]:
    """Returns all files, each for one of its quant types and sizes."""
    add_tests("cuda/compiled")
    from nvrtc_jobs import ARCHITECTURES, jobs

    every = [job.unit for job in jobs(ARCHITECTURES[0], 0, 1, every_one=True)]
    return [(unit.file, unit.quant_type, unit.size) for unit in every]


def compile_one(unit: Unit) -> str | None:
    """Compiles a kernel file as `CudaDevice` does; returns the error message, or None."""
    import cupy

    from sharpi.device.gpu_kernels import kernel_source, own_options

    file, quant_type, size = unit
    try:
        options = own_options(quant_type, size)
        cupy.RawModule(code=kernel_source(file), options=options).compile()
    except Exception as error:  # any error of NVRTC or the driver
        return " ".join(str(error).split())[:300]
    return None


if __name__ == "__main__":
    main()
