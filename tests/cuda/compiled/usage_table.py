"""The table of what kernels cost, which test_compile.py holds them to.

It has the kernels of common quant types and those of one size, each for the architectures that the
tests compile them for.
`python tests/cuda/compiled/usage_table.py` writes it again.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from nvrtc import CompileError, Toolkit, Usage, toolkits, version
from nvrtc_jobs import ARCHITECTURES, FLOATS, Job, compile_jobs, jobs

PATH = Path(__file__).with_name("usage_table.tsv")
_COLUMNS = "architecture", "entry", "registers", "shared", "instructions", "turn", "ahead"
_SLACK = 1.05
_GRANTED = 8  # registers that a thread gets at a time
_TYPES = ("q4_0", "q8_0", "q4_k", "q6_k", "mxfp4", "q4_k+q6_k")
_ATTENTION = "split_attention", "tiled_attention"
_ONE_TOKEN = re.compile(r"matvec_one_|experts_((gather_)?gate_up|down|product)_")


class Row:
    """What one entry point costs on one architecture.

    A turn is that of the loop over the units of a row: of one token's kernels, the loop for
    activations of one plane; of attention, the loop over pages. It is 0 for a kernel that
    multiplies no quantised weights, nor halves on tensor cores, in a loop. Where a kernel for one
    token takes two units in a turn, half of it is counted. `ahead` is the number of loads from
    global memory before the first product of its turn, and 0 for other kernels.
    """

    def __init__(self, architecture: int, usage: Usage) -> None:
        if _ONE_TOKEN.match(usage.entry):
            turn, ahead = _of_one_token(usage)
        else:
            turn, ahead = min(usage.around, default=0), 0
        self.key = str(architecture), usage.entry
        self.numbers = usage.registers, usage.shared_bytes, usage.instructions, turn, ahead


def _of_one_token(usage: Usage) -> tuple[int, int]:
    """Returns the instructions of a unit, and the loads ahead of a turn."""
    loops = zip(usage.innermost, usage.products, usage.loads_ahead, strict=True)
    turn, products, ahead = max(loops, default=(0, 1, 0))
    units = max(1, products // min(usage.products, default=1))
    return -(-turn // units), ahead


@cache
def table() -> tuple[str, dict[tuple[str, str], tuple[int, ...]]]:
    """Returns the NVRTC version that the table was made with, and the numbers of each row."""
    with PATH.open(encoding="utf-8", newline="") as file:
        version = file.readline().removeprefix("# NVRTC ").strip()
        rows = list(csv.reader(file, delimiter="\t"))[1:]
    return version, {(row[0], row[1]): tuple(map(int, row[2:])) for row in rows}


def excesses(architecture: int, usages: Iterable[Usage]) -> Iterator[str]:
    """Yields the figures of an architecture that are worse than the table's.

    Worse are over 5 % more instructions a turn, or in all if there is no loop; registers beyond the
    next multiple of 8; any more shared memory; and fewer loads ahead.
    """
    _, held = table()
    for usage in usages:
        row = Row(architecture, usage)
        if row.key in held:
            yield from _beyond(usage.entry, row.numbers, held[row.key])


def _beyond(entry: str, numbers: Sequence[int], held: Sequence[int]) -> Iterator[str]:
    registers, shared, instructions, turn, ahead = held
    limits = {
        "registers": (numbers[0], -(-registers // _GRANTED) * _GRANTED),
        "bytes of shared memory": (numbers[1], shared),
    }
    if turn:
        limits["instructions a turn"] = numbers[3], int(_SLACK * turn)
    else:
        limits["instructions"] = numbers[2], int(_SLACK * instructions)
    for what, (found, most) in limits.items():
        if found > most:
            yield f"{entry}: {found} {what}, not {most}"
    if numbers[4] < ahead:
        yield f"{entry}: {numbers[4]} loads ahead of its products, not {ahead}"


def compiled(toolkit: Toolkit, architecture: int, num_toolkits: int = 1) -> list[Usage]:
    """Returns what the tests compile for an architecture, of the types in the table.

    With one toolkit, that is all rows of the table; otherwise those that the first compiles.
    """
    return _usages(toolkit, jobs(architecture, 0, num_toolkits, every_one=False))


def _usages(toolkit: Toolkit, due: Iterable[Job]) -> list[Usage]:
    outcomes = compile_jobs(toolkit, [job for job in due if _is_held(job)])
    assert not any(isinstance(outcome, CompileError) for outcome in outcomes)
    return [usage for outcome in outcomes if isinstance(outcome, list) for usage in outcome]


def _is_held(job: Job) -> bool:
    unit = job.unit
    return unit.file in _ATTENTION or unit.quant_type in (None, *FLOATS, *_TYPES)


def main() -> None:
    """Writes the table."""
    toolkit = toolkits()[0]
    rows = {row.key: row for a in ARCHITECTURES for row in _rows(toolkit, a)}
    with PATH.open("w", encoding="utf-8", newline="") as file:
        file.write(f"# NVRTC {version(toolkit)}\n")
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(_COLUMNS)
        writer.writerows((*key, *row.numbers) for key, row in sorted(rows.items()))


def _rows(toolkit: Toolkit, architecture: int) -> Iterator[Row]:
    for usage in compiled(toolkit, architecture):
        yield Row(architecture, usage)


if __name__ == "__main__":
    main()
