"""Predicts the cycles of the AVX2 and AVX-VNNI matrix-vector kernels on Zen 3 and Alder Lake.

llvm-mca simulates the basic block of the installed library in which a kernel for one token spends
its time: 8 rows of 256 weights, with all data in L1. It has no model of Alder Lake's E cores. For
these, the table has a lower bound: a 256-bit instruction is two operations there, and three
operations begin per cycle. The last column is the rate, in GB/s, at which Zen 3 would read weights.
"""

import argparse
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from sharpi.gguf.quant_types import QuantType, row_bytes
from sharpi.resources import native_library

TYPES: tuple[str, ...] = ("Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q4_K", "Q5_K")
TYPES += ("Q6_K", "MXFP4", "IQ4_NL", "IQ4_XS", "Q2_K", "Q3_K", "TQ2_0")
_ITERATIONS = 100
_LINE = re.compile(r"\s*([0-9a-f]+):\t(.*)")
_KERNEL = re.compile(r"multiply_direct<.*?Unpack(?:BlocksOf32<.*?::)?(\w+)>?, 1, .*?Level\)0>")
_MOVES = ("vmov", "vbroadcast", "vpbroadcast", "prefetch")


@dataclass(frozen=True)
class Kernel:
    """The basic block in which one kernel spends its time, as assembler code."""

    quant_type: str
    instruction_set: str
    code: list[str]

    @property
    def bytes_read(self) -> int:
        return 8 * row_bytes(QuantType[self.quant_type], 256)

    @property
    def operations(self) -> list[str]:
        """Returns the vector instructions that compute, without loads, stores and prefetches."""
        vectors = [each for each in self.code if each.startswith(("v", "{vex}"))]
        return [each for each in vectors if not each.startswith(_MOVES)]

    @property
    def cycles_of_an_e_core(self) -> float:
        return sum(2 if "ymm" in each else 1 for each in self.operations) / 3


def main() -> None:
    """Parses the command line and prints a row for each type."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llvm-mca", default="llvm-mca", help="version 16 or later")
    parser.add_argument("--ghz", type=float, default=3.5, help="the clock of the last column")
    options = parser.parse_args()
    if not shutil.which(options.llvm_mca):
        parser.error(f"no {options.llvm_mca}: install llvm, or name it with --llvm-mca")
    kernels = {(each.quant_type, each.instruction_set): each for each in read_kernels()}
    print("| type | set | instructions | operations ", end="")
    print(f"| Zen 3 | Alder Lake P | Alder Lake E, at least | Zen 3 at {options.ghz} GHz |")
    print("|---|---|---|---|---|---|---|---|")
    for quant_type in TYPES:
        for name in ("avx2", "avx_vnni"):
            print(row(kernels[quant_type, name], options.llvm_mca, options.ghz))


def read_kernels() -> Iterator[Kernel]:
    """Disassembles the installed library and yields its AVX2 and AVX-VNNI kernels for one token."""
    command = ["objdump", "-d", "-C", "--no-show-raw-insn", str(native_library())]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for function in text.split("\n\n"):
        name, _, body = function.partition("\n")
        if (found := _KERNEL.search(name)) and "avx2::" in name:
            code = longest_line(
                [match.groups() for match in map(_LINE.match, body.split("\n")) if match]
            )
            yield Kernel(found[1], set_of(code), code)


def set_of(code: list[str]) -> str:
    """Returns the instruction set that a kernel was compiled for, by the instructions it uses."""
    if not any("ymm" in each for each in code):
        return "sse41"
    return "avx_vnni" if any("vpdpbusd" in each for each in code) else "avx2"


def longest_line(instructions: list[tuple[str, ...]]) -> list[str]:
    """Returns the longest sequence of instructions that no jump enters or leaves."""
    jumps = (re.match(r"j\S+\s+([0-9a-f]+)", text) for _, text in instructions)
    targets = {jump[1] for jump in jumps if jump}
    lines: list[list[str]] = [[]]
    for address, text in instructions:
        if address in targets or text.startswith("j"):
            lines.append([])
        if not text.startswith(("j", "nop", "cs nop", "data16")):
            lines[-1].append(without_symbols(text))
    return max(lines, key=len)


def without_symbols(text: str) -> str:
    """Returns a disassembled instruction without comments, symbols and relative addresses."""
    return re.sub(r"0x[0-9a-f]+\(%rip\)", "0(%rip)", re.sub(r"\s*(#.*|<.*>)", "", text))


def row(kernel: Kernel, llvm_mca: str, ghz: float) -> str:
    zen3, alder_lake = (simulate(kernel.code, llvm_mca, cpu) for cpu in ("znver3", "alderlake"))
    rate = f"{kernel.bytes_read * ghz / zen3:.1f} GB/s"
    cells = [f"{len(kernel.code)}", f"{len(kernel.operations)}", f"{zen3:.0f}", f"{alder_lake:.0f}"]
    cells += [f"{kernel.cycles_of_an_e_core:.0f}", rate]
    if kernel.instruction_set == "avx_vnni":
        cells[2] = cells[5] = "-"  # Zen 3 lacks it
    return f"| {kernel.quant_type} | {kernel.instruction_set} | " + " | ".join(cells) + " |"


def simulate(code: list[str], llvm_mca: str, cpu: str) -> float:
    """Returns the mean cycles of one iteration of the code on `cpu`, as llvm-mca simulates it."""
    command = [llvm_mca, f"-mcpu={cpu}", f"-iterations={_ITERATIONS}"]
    text = "\n".join([*code, ""])
    report = subprocess.run(command, input=text, check=True, capture_output=True, text=True).stdout
    cycles = re.search(r"Total Cycles:\s+(\d+)", report)
    assert cycles, report
    return int(cycles[1]) / _ITERATIONS


if __name__ == "__main__":
    main()
