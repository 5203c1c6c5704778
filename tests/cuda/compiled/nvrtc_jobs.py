"""Chooses which kernels are compiled for which architecture, and compiles them in parallel."""

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from nvrtc import CompileError, Toolkit, Usage, usages

from sharpi.device.kernel_source import kernel_source
from sharpi.device.nvrtc import compile_options
from sharpi.resources import kernels_folder

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
# Types of keys and of values that attention is compiled for; without one, for f16.
KV_PAIRS = ("q8_0+q8_0", "q5_1+q5_0", "q5_0+q4_0", "q4_0+iq4_nl", "iq4_nl+turbo3", "turbo3+q5_1")
# Quant types that files mix in a layer's attention, of kernels that are compiled for several.
PAIRS = ("Q4_K+Q6_K", "Q5_K+Q6_K", "Q4_K+Q5_K", "Q3_K+Q5_K", "Q8_0+Q4_K", "Q4_0+Q6_K", "Q8_0+MXFP4")
FLOATS = "f32", "f16", "bf16"
QUANTISED = "QUANTISED_TYPES"
TRIPLES = ("Q4_K+Q5_K+Q6_K", "Q8_0+Q4_K+Q6_K")
# Newer files, in the order in which they came: behind the others, they leave these and each other
# the architectures of their rows in the table.
_LAST = (
    *("bf16_rows", "delta_net_chunks", "dequantise_experts", "mamba2_chunks", "gate_heads"),
    *("experts_gather_gate_up", "slot_route", "join_heads"),
    *("experts_f16_gate_up", "experts_f16_product"),
)


@dataclass(frozen=True)
class Unit:
    """What sharpi compiles at once: a file, for one quant type and size where it has several."""

    file: str
    quant_type: str | None = None
    size: int | None = None

    def __str__(self) -> str:
        return " ".join(str(each) for each in (self.file, self.quant_type, self.size) if each)


@dataclass(frozen=True)
class Job:
    """A unit for one architecture."""

    unit: Unit
    architecture: int

    @property
    def options(self) -> tuple[str, ...]:
        """The options that sharpi compiles it with."""
        return compile_options(self.architecture, self.unit.quant_type, self.unit.size)

    @property
    def source(self) -> str:
        """The text of its file, with headers."""
        return kernel_source(self.unit.file)

    def __str__(self) -> str:
        return f"{self.unit} sm_{self.architecture}"


def jobs(architecture: int, toolkit: int, num_toolkits: int, every_one: bool) -> list[Job]:
    """The files that a toolkit, of so many, compiles for an architecture.

    The toolkits take turns: together they compile each file without quant types for every
    architecture, one of its variants where it has several, and each type of the other files for
    one. Each toolkit compiles each file for some. Of a file with sizes and types of keys and
    values, each pair of types has one size.
    """
    index = ARCHITECTURES.index(architecture)

    def is_due(place: int, unit: Unit) -> bool:
        variants = _variants(unit.file)
        if unit not in variants:
            turn, due = divmod(place, len(ARCHITECTURES))
            return due == index and turn % num_toolkits == toolkit and _has_size_of_pair(unit)
        if len(variants) == 1:
            return (place + index) % num_toolkits == toolkit
        turn, due = divmod(index, len(variants))
        return variants[due] == unit and (due + turn) % num_toolkits == toolkit

    return [
        Job(unit, architecture)
        for units in (_units(), _attention_units())
        for place, unit in enumerate(units)
        if every_one or is_due(place, unit)
    ]


def compile_jobs(toolkit: Toolkit, wanted: Sequence[Job]) -> list[list[Usage] | CompileError]:
    """Returns the resource usage of each job, or the error of its compilation."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(partial(_compile, toolkit), wanted))


def _compile(toolkit: Toolkit, job: Job) -> list[Usage] | CompileError:
    try:
        return usages(toolkit, job.source, job.options)
    except CompileError as error:
        return error


@cache
def _units() -> tuple[Unit, ...]:
    return tuple(_all_units())


def _all_units() -> Iterator[Unit]:
    folder = kernels_folder() / "cuda"
    types = re.findall(r"defined\(ONLY_(\w+)\)", (folder / "quant" / "quant_types.cuh").read_text())
    for path in sorted(folder.rglob("*.cu"), key=_order):
        text = path.read_text()
        each = PAIRS if "#ifndef FIRST_TYPE" in text else types if _has(QUANTISED, text) else ()
        yield from (Unit(path.stem, quant_type.lower()) for quant_type in each)
        if not each:
            yield from _variants(path.stem)
    yield from (Unit("matvec_mixed", triple.lower()) for triple in TRIPLES)


def _order(path: Path) -> tuple[int, str]:
    return (_LAST.index(path.stem) + 1 if path.stem in _LAST else 0, path.name)


def _attention_units() -> list[Unit]:
    files = "attention", "split_attention", "tiled_attention"
    sizes = [(file, variant.size) for file in files for variant in _variants(file)]
    return [Unit(file, pair, size) for file, size in sizes for pair in KV_PAIRS]


def _has_size_of_pair(unit: Unit) -> bool:
    if unit.size is None or unit.quant_type not in KV_PAIRS:
        return True
    variants = _variants(unit.file)
    return variants[KV_PAIRS.index(unit.quant_type) % len(variants)].size == unit.size


@cache
def _variants(file: str) -> tuple[Unit, ...]:
    """Returns a file for each size or float type that it is compiled for one at a time."""
    text = kernel_source(file)
    sizes = re.findall(r"^#if HAS_SIZE\((\d+)\)", text, re.MULTILINE)
    floats = FLOATS if _has("FLOAT_TYPES", text) and not _has(QUANTISED, text) else ()
    variants = [Unit(file, size=int(size)) for size in sizes] + [Unit(file, t) for t in floats]
    return tuple(variants) or (Unit(file),)


def _has(macro: str, text: str) -> bool:
    """Returns True if a file has entry points for each type of the macro."""
    return re.search(rf"^{macro}\(", text, re.MULTILINE) is not None
