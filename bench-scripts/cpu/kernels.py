"""Measures the matrix kernels by quant type and instruction set, relative to the machine's limits.

For one token (T=1), the rate is GB/s of weights, with a matrix larger than the CPU's caches, and
the limit is the rate of only reading the same pages. For 512 tokens, the rate is GOP/s, and the
limit is the peak of the same int8 instructions. Each product is a recorded step of one operation,
run as in the engine.
"""

import argparse
import json
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from sharpi.errors import UsageError
from sharpi.gguf.quant_types import QuantType, row_bytes
from sharpi.hardware.info import probe_hardware
from sharpi.hardware.product_rate import COLUMNS, RecordedProduct, random_matrix
from sharpi.model.tensors import SUPPORTED_TYPES
from sharpi.ops.cpu.library import INSTRUCTION_SETS, instruction_set
from sharpi.ops.cpu.machine_limits import int8_operations_per_second, read_bytes_per_second
from sharpi.ops.interface import Matrix

_VECTOR_BYTES = 256 << 20
_BATCH, _BATCH_ROWS = 512, 4096
_FLOAT_TYPES = (QuantType.F32, QuantType.F16, QuantType.BF16)


@dataclass(frozen=True)
class Row:
    """One measurement; `rate`, `deviation` and `limit` are GB/s for one token, else GOP/s."""

    quant_type: str
    instruction_set: str
    tokens: int
    threads: int
    rate: float
    deviation: float
    limit: float


def main() -> None:
    """Parses the command line and prints a line for each type and instruction set."""
    options = parse_options()
    rows: list[Row] = []
    print(heading(options.threads))
    for isa in options.isa or available_sets():
        for quant_type in options.types or quantised_types():
            measured = list(measure(quant_type, isa, options.threads, options.rounds))
            print(line(measured), flush=True)
            rows += measured
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


def parse_options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    threads = f"1,{probe_hardware().physical_cores}"
    parser.add_argument("--types", type=type_list, metavar="Q4_K,...")
    parser.add_argument("--isa", type=lambda text: text.split(","), metavar="avx2,...")
    parser.add_argument("-t", "--threads", type=thread_list, default=threads, metavar="N,...")
    parser.add_argument("-r", "--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    return parser.parse_args()


def type_list(text: str) -> list[QuantType]:
    return [QuantType[name] for name in text.split(",")]


def thread_list(text: str) -> list[int]:
    return sorted({int(number) for number in text.split(",")})


def available_sets() -> list[str]:
    """Returns the instruction sets that this machine supports, the best first."""
    return [name for name in INSTRUCTION_SETS if has(name)]


def has(name: str) -> bool:
    try:
        return instruction_set(name) == name
    except UsageError:
        return False


def quantised_types() -> list[QuantType]:
    """Returns the quant types whose matrix products use int8 instructions."""
    return sorted(SUPPORTED_TYPES.difference(_FLOAT_TYPES))


def measure(quant_type: QuantType, isa: str, threads: list[int], rounds: int) -> Iterator[Row]:
    """Yields a row for one token with each number of threads, then one for a batch of 512.

    The batch uses the largest number of threads.
    """
    large = random_matrix(quant_type, _VECTOR_BYTES // row_bytes(quant_type, COLUMNS))
    for count in threads:
        limit = read_bytes_per_second([large.data], count)
        samples = [large.data.nbytes / s / 1e9 for s in run(large, isa, 1, count, rounds)]
        limit = max(limit, read_bytes_per_second([large.data], count))
        yield row(quant_type, isa, 1, count, samples, limit / 1e9)
    small, count = random_matrix(quant_type, _BATCH_ROWS), threads[-1]
    operations = 2 * _BATCH * _BATCH_ROWS * COLUMNS
    limit = int8_operations_per_second(isa, count) / 1e9
    samples = [operations / s / 1e9 for s in run(small, isa, _BATCH, count, rounds)]
    yield row(quant_type, isa, _BATCH, count, samples, limit)


def row(
    quant_type: QuantType, isa: str, tokens: int, threads: int, samples: list[float], limit: float
) -> Row:
    deviation = statistics.stdev(samples) if len(samples) > 1 else 0.0
    median = statistics.median(samples)
    return Row(quant_type.name, isa, tokens, threads, median, deviation, limit)


def run(matrix: Matrix, isa: str, tokens: int, threads: int, rounds: int) -> list[float]:
    """Returns the seconds of a matrix product in each round, after a warm-up."""
    with RecordedProduct(matrix, isa, tokens, threads) as product:
        return [product.seconds() for _ in range(rounds + 1)][1:]


def heading(threads: list[int]) -> str:
    cells = [f"{f'T=1, {count} threads':>24}" for count in threads]
    return (
        f"{'set':<12}{'type':<9}" + "".join(cells) + f"{f'T={_BATCH}, {threads[-1]} threads':>24}"
    )


def line(rows: list[Row]) -> str:
    cells = ""
    for each in rows:
        unit = "GB/s" if each.tokens == 1 else "GOP/s"
        cells += f"{f'{each.rate:.1f} {unit} {100 * each.rate / each.limit:5.1f} %':>24}"
    return f"{rows[0].instruction_set:<12}{rows[0].quant_type:<9}{cells}"


if __name__ == "__main__":
    main()
