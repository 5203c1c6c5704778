"""The table of what kernels of common quant types cost, which test_compile.py holds them to.

`python tests/cuda/compiled/usage_table.py` writes it again, for the architectures that the tests
compile a type for.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from nvrtc import CompileError, Toolkit, Usage, toolkits, version
from nvrtc_jobs import ARCHITECTURES, Job, compile_jobs, jobs

PATH = Path(__file__).with_name("usage_table.tsv")
_COLUMNS = "architecture", "entry", "registers", "shared", "instructions", "turn"
_SLACK = 1.05
_GRANTED = 8  # registers that a thread gets at a time
_TYPES = ("q4_0", "q8_0", "q4_k", "q6_k", "mxfp4", "q4_k+q6_k")
_ATTENTION = {"split_attention": 80, "tiled_attention": 90}  # and the architecture of f16
_ONE_TOKEN = re.compile(r"matvec_one_|experts_(gate_up|down|product)_")


class Row:
    """What one entry point costs on one architecture.

    A turn is that of the loop over the units of a row: of one token's kernels, the loop for
    activations of one plane; of attention, the loop over pages.
    """

    def __init__(self, architecture: int, usage: Usage) -> None:
        if _ONE_TOKEN.match(usage.entry):
            turn = max(usage.innermost, default=0)
        else:
            turn = min(usage.around, default=0)
        self.key = str(architecture), usage.entry
        self.numbers = usage.registers, usage.shared_bytes, usage.instructions, turn

    @property
    def is_product(self) -> bool:
        """True if it multiplies quantised weights, or halves on tensor cores, in a loop."""
        return self.numbers[-1] > 0


@cache
def table() -> tuple[str, dict[tuple[str, str], tuple[int, ...]]]:
    """Returns the version of NVRTC that it was made with, and the numbers of each row."""
    with PATH.open(encoding="utf-8", newline="") as file:
        version = file.readline().removeprefix("# NVRTC ").strip()
        rows = list(csv.reader(file, delimiter="\t"))[1:]
    return version, {(row[0], row[1]): tuple(map(int, row[2:])) for row in rows}


def excesses(architecture: int, usages: Iterable[Usage]) -> Iterator[str]:
    """Yields what takes more of something than the table says.

    That is over 5 % more instructions a turn, so a weight; registers that a GPU grants a further 8
    for; or any more shared memory.
    """
    _, held = table()
    for usage in usages:
        row = Row(architecture, usage)
        if row.is_product and row.key in held:
            yield from _beyond(usage.entry, row.numbers, held[row.key])


def _beyond(entry: str, numbers: Sequence[int], held: Sequence[int]) -> Iterator[str]:
    registers, shared, _, turn = held
    limits = {
        "registers": (numbers[0], -(-registers // _GRANTED) * _GRANTED),
        "bytes of shared memory": (numbers[1], shared),
        "instructions a turn": (numbers[3], int(_SLACK * turn)),
    }
    for what, (found, most) in limits.items():
        if found > most:
            yield f"{entry}: {found} {what}, not {most}"


def compiled(toolkit: Toolkit, architecture: int) -> list[Usage]:
    """Returns what the tests compile for an architecture, of the types in the table."""
    due = jobs(architecture, toolkits().index(toolkit), len(toolkits()), every_one=False)
    outcomes = compile_jobs(toolkit, [job for job in due if _is_held(job)])
    assert not any(isinstance(outcome, CompileError) for outcome in outcomes)
    return [usage for outcome in outcomes if isinstance(outcome, list) for usage in outcome]


def _is_held(job: Job) -> bool:
    if job.quant_type is None:
        return _ATTENTION.get(job.file) == job.architecture
    return job.file in _ATTENTION or job.quant_type in _TYPES


def main() -> None:
    """Writes the table."""
    toolkit = toolkits()[0]
    rows = [Row(a, usage) for a in ARCHITECTURES for usage in compiled(toolkit, a)]
    rows = sorted((row for row in rows if row.is_product), key=lambda row: row.key)
    with PATH.open("w", encoding="utf-8", newline="") as file:
        file.write(f"# NVRTC {version(toolkit)}\n")
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(_COLUMNS)
        writer.writerows((*row.key, *row.numbers) for row in rows)


if __name__ == "__main__":
    main()
