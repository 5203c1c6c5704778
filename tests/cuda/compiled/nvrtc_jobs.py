"""Chooses which kernels are compiled for which architecture, and compiles them in parallel."""

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import cycle
from zlib import crc32

from nvrtc import CompileError, Toolkit, Usage, compile_options, usages

from sharpi.device.gpu_kernels import kernel_source
from sharpi.resources import kernels_folder

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
# Kernels without quant types: the oldest, and the newest, whose multiprocessors have less shared
# memory, and which has programmatic launches.
WITHOUT_TYPE = (75, 120)
# Types of keys and of values that attention is compiled for; without one, for f16.
KV_PAIRS = ("q8_0+q8_0", "q5_1+q5_0", "q5_0+q4_0", "q4_0+iq4_nl", "iq4_nl+turbo3", "turbo3+q5_1")
# Quant types that files mix in a layer's attention, of kernels that are compiled for several.
PAIRS = ("Q4_K+Q6_K", "Q5_K+Q6_K", "Q4_K+Q5_K", "Q3_K+Q5_K", "Q8_0+Q4_K", "Q4_0+Q6_K", "Q8_0+MXFP4")
FLOATS = "f32", "f16", "bf16"
USUAL = (*FLOATS, "q4_0", "q8_0", "q4_k", "q5_k", "q6_k", "mxfp4")
IN_TURN = 3  # how many files there are to one that is compiled for an unusual type
QUANTISED = "QUANTISED_TYPES"
TRIPLES = ("Q4_K+Q5_K+Q6_K", "Q8_0+Q4_K+Q6_K")


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


def jobs(architecture: int, toolkit: int, num_toolkits: int, *, every_one: bool) -> list[Job]:
    """The units that a toolkit, of so many, compiles for an architecture, in turns with others.

    Each usual type of a file is compiled for one architecture, other types in turns.
    """

    def is_due(unit: Unit) -> bool:
        if not is_compiled(unit):
            return False
        index = ARCHITECTURES.index(architecture)
        turn = crc32(str(unit).encode()) // len(ARCHITECTURES) + index // 4
        return architecture in _architectures(unit) and turn % num_toolkits == toolkit

    units = (*_units(), *_attention_units())
    return [Job(unit, architecture) for unit in units if every_one or is_due(unit)]


def _architectures(unit: Unit) -> tuple[int, ...]:
    """Returns the architectures of a unit; other units do not change them."""
    if is_without_type(unit) and unit.size is None:
        return WITHOUT_TYPE
    return (ARCHITECTURES[crc32(str(unit).encode()) % len(ARCHITECTURES)],)


def is_compiled(unit: Unit) -> bool:
    """Returns True for all but most files of unusual types, as types differ in a header alone."""
    name = unit.quant_type or ""
    if unit.size is not None or "+" in name or name in ("", *USUAL):
        return True
    return not _units().index(unit) % IN_TURN


def is_without_type(unit: Unit) -> bool:
    """Returns True for a kernel without quant types; slot_route has float types alone."""
    return unit.quant_type is None or unit.file == "slot_route"


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
    for path in sorted(folder.rglob("*.cu")):
        text = path.read_text()
        each = PAIRS if "#ifndef FIRST_TYPE" in text else types if _has(QUANTISED, text) else ()
        yield from (Unit(path.stem, quant_type.lower()) for quant_type in each)
        if not each:
            yield from _variants(path.stem)
    yield from (Unit("matvec_mixed", triple.lower()) for triple in TRIPLES)


def _attention_units() -> list[Unit]:
    """Returns attention for pairs of types of keys and values, each for one size of heads."""
    files = "attention", "split_attention", "tiled_attention"
    return [
        Unit(file, pair, size)
        for file in files
        for pair, size in zip(KV_PAIRS, cycle(each.size for each in _variants(file)), strict=False)
    ]


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
