"""Chooses which kernels are compiled for which architecture, and compiles them in parallel."""

import multiprocessing
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from nvrtc import CompileError, Toolkit, Usage, kept_usages, usages

from sharpi.device.kernel_source import kernel_source
from sharpi.device.nvrtc import compile_options
from sharpi.resources import kernels_folder

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
# Types of keys and of values that attention is compiled for; without one, for f16.
KV_PAIRS = ("q8_0+q8_0", "q5_1+q5_0", "q5_0+q4_0", "q4_0+iq4_nl", "iq4_nl+turbo3", "turbo3+q5_1")
# Quant types that files mix in a layer's attention, of kernels that are compiled for several.
PAIRS = ("Q4_K+Q6_K", "Q5_K+Q6_K", "Q4_K+Q5_K", "Q3_K+Q5_K", "Q8_0+Q4_K", "Q4_0+Q6_K", "Q8_0+MXFP4")
TRIPLES = ("Q4_K+Q5_K+Q6_K", "Q8_0+Q4_K+Q6_K")
# Newer files, in the order in which they came: behind the others, they leave these and each other
# the architectures of their rows in the table.
_LAST = (
    *("bf16_rows", "delta_net_chunks", "dequantise_experts", "mamba2_chunks", "gate_heads"),
    *("experts_gather_gate_up", "slot_route", "join_heads"),
    *("experts_f16_gate_up", "experts_f16_product"),
)


@dataclass(frozen=True)
class Job:
    """One file for one architecture; of a file for each quant type, one type as sharpi does."""

    file: str
    quant_type: str | None
    architecture: int

    def __str__(self) -> str:
        return f"{self.file} {self.quant_type or ''} sm_{self.architecture}"


def jobs(architecture: int, toolkit: int, num_toolkits: int, every_one: bool) -> list[Job]:
    """The files that a toolkit, of so many, compiles for an architecture.

    A file of float types alone is compiled for all of them at once, as a file without types.

    The toolkits take turns: together they compile each file without types for every architecture,
    and each type of the other files for one. Each toolkit compiles each file for some.
    """
    index = ARCHITECTURES.index(architecture)

    def is_due(place: int, quant_type: str | None) -> bool:
        if quant_type is None:
            return (place + index) % num_toolkits == toolkit
        turn, due = divmod(place, len(ARCHITECTURES))
        return due == index and turn % num_toolkits == toolkit

    return [
        Job(file, quant_type, architecture)
        for units in (_units(), _attention_units())
        for place, (file, quant_type) in enumerate(units)
        if every_one or is_due(place, quant_type)
    ]


def compile_jobs(toolkit: Toolkit, wanted: Sequence[Job]) -> list[list[Usage] | CompileError]:
    """Returns the resource usage of each job, or the error of its compilation."""
    found = _compile_side_by_side(toolkit, [job for job in wanted if not _is_kept(toolkit, job)])
    return [found[job] if job in found else _compile(toolkit, job) for job in wanted]


def _compile_side_by_side(
    toolkit: Toolkit, wanted: Sequence[Job]
) -> dict[Job, list[Usage] | CompileError]:
    if not wanted:
        return {}
    processes = len(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")  # a fork would copy the threads of the tests
    with ProcessPoolExecutor(processes, context) as pool:
        return dict(zip(wanted, pool.map(partial(_compile, toolkit), wanted), strict=True))


def _is_kept(toolkit: Toolkit, job: Job) -> bool:
    options = compile_options(job.architecture, job.quant_type)
    return kept_usages(toolkit, kernel_source(job.file), options).exists()


def _compile(toolkit: Toolkit, job: Job) -> list[Usage] | CompileError:
    options = compile_options(job.architecture, job.quant_type)
    try:
        return usages(toolkit, kernel_source(job.file), options)
    except CompileError as error:
        return error


@cache
def _units() -> tuple[tuple[str, str | None], ...]:
    return tuple(_all_units())


def _order(path: Path) -> tuple[int, str]:
    return (_LAST.index(path.stem) + 1 if path.stem in _LAST else 0, path.name)


def _all_units() -> Iterator[tuple[str, str | None]]:
    folder = kernels_folder() / "cuda"
    types = re.findall(r"defined\(ONLY_(\w+)\)", (folder / "quant" / "quant_types.cuh").read_text())
    for path in sorted(folder.rglob("*.cu"), key=_order):
        text = path.read_text()
        each = types if re.search(r"^QUANTISED_TYPES\(", text, re.MULTILINE) else [None]
        for quant_type in PAIRS if "#ifndef FIRST_TYPE" in text else each:
            yield path.stem, quant_type and quant_type.lower()
    yield from (("matvec_mixed", triple.lower()) for triple in TRIPLES)


def _attention_units() -> list[tuple[str, str]]:
    files = "attention", "split_attention", "tiled_attention"
    return [(file, pair) for file in files for pair in KV_PAIRS]
