"""Every kernel compiles for every architecture, and fits the GPUs of it without spilling.

All types of all files for all architectures by both versions of CUDA take many minutes, and
SHARPI_EVERY_ARCHITECTURE=1 asks for them. Without it each usual type of a file is compiled for one
architecture, unusual types for some files, and each file without types for two; the two versions
take turns.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from nvrtc import CompileError, Toolkit, Usage, toolkits, version
from nvrtc_jobs import (
    ARCHITECTURES,
    Job,
    Unit,
    compile_jobs,
    is_compiled,
    is_without_type,
    jobs,
)
from usage_table import Row, compiled, excesses, table

from sharpi.device.driver import CAPABILITY
from sharpi.device.gpu_kernels import waits_for_last_launch
from sharpi.resources import kernels_folder

REGISTERS_OF_A_BLOCK = 65536
STATIC_SHARED_BYTES = 46 << 10  # and 2 KB more in a launch, without an attribute
ACCURATE_ANGLES = {"rope_angles"}  # sinf and cosf reduce large arguments in local memory
# By version of CUDA, the bytes that kernels at the limit of registers keep in memory: of attention
# on sm_120, of experts on sm_90. A higher limit would cost a block of each multiprocessor.
SPILLED = {
    12: {
        "attention_heads4_Q5_1_Q5_0": 20,
        "experts_down_exact_bf16": 16,
        "experts_down_exact_f16": 16,
    },
    13: {"attention_heads4_Q5_1_Q5_0": 20},
}
TOOLKITS = toolkits()
CUDA = kernels_folder() / "cuda"


def test_nvrtc_is_installed() -> None:
    """Without NVRTC the tests below would be skipped unnoticed."""
    assert any(toolkit.major == 13 for toolkit in TOOLKITS), (
        "pip install nvidia-cuda-nvrtc nvidia-cuda-runtime"
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("toolkit", TOOLKITS, ids=lambda toolkit: f"cuda{toolkit.major}")
def test_compiles_and_fits(toolkit: Toolkit, architecture: int) -> None:
    every_one = "SHARPI_EVERY_ARCHITECTURE" in os.environ
    wanted = jobs(architecture, TOOLKITS.index(toolkit), len(TOOLKITS), every_one=every_one)
    outcomes = compile_jobs(toolkit, wanted)
    spilled = SPILLED.get(toolkit.major, {})
    found = [
        f"{job}: {problem}"
        for job, outcome in zip(wanted, outcomes, strict=True)
        for problem in (*problems(outcome, spilled), *unordered(job, outcome))
    ]
    assert not found, "\n".join(found)
    names = {usage.entry for outcome in outcomes if isinstance(outcome, list) for usage in outcome}
    assert len(names) >= len({job.unit.file for job in wanted})


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_costs_are_those_of_the_table(architecture: int) -> None:
    """`python tests/cuda/usage_table.py` writes it again, for a change that is worth its cost."""
    toolkit, (held, rows) = TOOLKITS[0], table()
    if version(toolkit) != held:
        pytest.skip(f"the table is of NVRTC {held}, and this is {version(toolkit)}")
    usages = compiled(toolkit, architecture, len(TOOLKITS))
    assert not list(excesses(architecture, usages))
    assert usages
    assert {Row(architecture, usage).key for usage in usages} <= rows.keys()


def test_finds_excesses() -> None:
    rows = table()[1]
    (architecture, entry), (registers, shared, _, turn, ahead) = next(
        (key, row) for key, row in rows.items() if row[-1]
    )

    def found(registers: int, shared: int, turn: int, ahead: int = ahead) -> list[str]:
        loops = {"innermost": (turn,), "products": (16,), "loads_ahead": (ahead,)}
        usage = Usage(entry, 256, registers, shared, 0, 0, around=(turn,), **loops)
        return list(excesses(int(architecture), [usage]))

    assert found(registers, shared, turn) == []
    assert found(registers - 8, 0, turn - 1) == []
    (fewer,) = found(registers, shared, turn, ahead - 1)
    assert fewer == f"{entry}: {ahead - 1} loads ahead of its products, not {ahead}"
    assert [text.split(" ", 2)[2] for text in found(registers + 8, shared + 4, 2 * turn)] == [
        f"registers, not {-(-registers // 8) * 8}",
        f"bytes of shared memory, not {shared}",
        f"instructions a turn, not {int(1.05 * turn)}",
    ]


def problems(
    outcome: list[Usage] | CompileError, spilled: Mapping[str, int] | None = None
) -> Iterator[str]:
    """Returns the problems of a compiled file, for each entry point.

    `spilled`: bytes of registers that entry points may keep in memory.
    """
    if isinstance(outcome, CompileError):
        yield str(outcome)
        return
    for usage in outcome:
        if not usage.block:
            yield f"{usage.entry} has no __launch_bounds__"
        if usage.block * usage.registers > REGISTERS_OF_A_BLOCK:
            yield f"{usage.entry}: {usage.registers} registers for {usage.block} threads"
        most = (spilled or {}).get(usage.entry, 0)
        if usage.spilled_bytes > most:
            yield f"{usage.entry} spills {usage.spilled_bytes} bytes of registers"
        if usage.stack_bytes > most and usage.entry not in ACCURATE_ANGLES:
            yield f"{usage.entry} keeps {usage.stack_bytes} bytes of variables in memory"
        if usage.shared_bytes > STATIC_SHARED_BYTES:
            yield f"{usage.entry} takes {usage.shared_bytes} bytes of shared memory"


def unordered(job: Job, outcome: list[Usage] | CompileError) -> Iterator[str]:
    """Yields what a kernel of a programmatic launch does before it waits for earlier launches."""
    if isinstance(outcome, CompileError) or job.architecture < CAPABILITY:
        return
    for usage in outcome:
        if usage.waits != waits_for_last_launch(job.unit.file):
            yield f"{usage.entry} waits for earlier launches: {usage.waits}"
        if usage.accesses_before:
            yield f"{usage.entry} touches memory before it waits"


def test_finds_what_is_done_too_early() -> None:
    job, early = Job(Unit("rms_norm"), 90), Usage("early", 32, 8, 0, 0, 0, accesses_before=1)
    assert len(list(unordered(job, [early]))) == 2
    assert list(unordered(Job(Unit("rms_norm"), 75), [early])) == []


def test_finds_excesses_of_kernels_without_a_turn() -> None:
    key, (registers, shared, instructions, turn, _) = next(
        (key, row) for key, row in table()[1].items() if key[1] == "delta_net_128"
    )
    assert turn == 0
    most = int(1.05 * instructions)
    usage = Usage(key[1], 256, registers, shared, 0, 0, most)
    assert list(excesses(int(key[0]), [usage])) == []
    (found,) = excesses(int(key[0]), [replace(usage, instructions=most + 1)])
    assert found == f"delta_net_128: {most + 1} instructions, not {most}"


@pytest.mark.parametrize(
    ("file", "quant_type", "architecture"),
    [
        ("experts_gate_up", "q8_0", 120),
        ("experts_gate_up", "mxfp4", 80),
        ("experts_product", "q4_k", 90),
        ("experts_product", "q6_k", 90),
    ],
)
def test_loads_two_units_before_it_multiplies(
    file: str, quant_type: str, architecture: int
) -> None:
    """The longest loop takes two units, and has twice the loads of the loop for one unit."""
    (found,) = compile_jobs(TOOLKITS[0], [Job(Unit(file, quant_type), architecture)])
    assert isinstance(found, list)
    usage = next(usage for usage in found if usage.entry == f"{file}_{quant_type}")
    loops = zip(usage.innermost, usage.products, usage.loads_ahead, strict=True)
    two, one, *_ = sorted(loops, reverse=True)
    assert two[1:] == (2 * one[1], 2 * one[2])


@pytest.mark.parametrize("num_toolkits", [1, 2])
def test_no_file_is_left_out(num_toolkits: int) -> None:
    """Each unit is compiled for one architecture at least, those without types for two.

    A third of the files is compiled for each type that few models have.
    """
    asked = {job.unit for job in jobs(90, 0, 1, every_one=True)}
    every = {unit for unit in asked if is_compiled(unit)}
    assert {unit.file for unit in every} == {path.stem for path in CUDA.rglob("*.cu")}
    files_of = Counter(unit.quant_type for unit in every)
    assert min(files_of[unit.quant_type] for unit in asked if unit.file == "matvec") > 1
    of_toolkit = [
        {job for each in ARCHITECTURES for job in jobs(each, number, num_toolkits, every_one=False)}
        for number in range(num_toolkits)
    ]
    due = set.union(*of_toolkit)
    assert {job.unit for job in due} == every
    assert sum(map(len, of_toolkit)) == len(due)
    of_120 = {job.unit for job in due if job.architecture == 120}
    assert {unit for unit in every if is_without_type(unit) and unit.size is None} <= of_120


def test_finds_problems() -> None:
    bad = Usage("bad", 1024, 65, STATIC_SHARED_BYTES + 1, 8, 4)
    assert len(list(problems([bad]))) == 4
    assert len(list(problems([Usage("unbounded", 0, 200, 0, 0, 0)]))) == 1
    assert list(problems([Usage("good", 256, 128, 4096, 0, 0)])) == []
    known = Usage("known", 256, 64, 4096, 8, 16)
    assert list(problems([known], {"known": 16})) == []
    assert len(list(problems([known], {"known": 12, "other": 16}))) == 1
    assert list(problems(CompileError("error: no"))) == ["error: no"]
