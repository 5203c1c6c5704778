"""Measures how fast this machine multiplies one token by quantised weights, which it reads.

It is the rate of the engine's own kernels, so it includes what memory and processor can do.
"""

import time

import numpy as np

from sharpi.gguf.quant_types import QuantType, row_bytes
from sharpi.ops.cpu import abi
from sharpi.ops.cpu.kv_cache import KvCache
from sharpi.ops.cpu.library import ThreadPool
from sharpi.ops.cpu.program import Program, ProgramLimits, Rounding, int_pointer
from sharpi.ops.cpu.recorder import Recorder
from sharpi.ops.interface import Matrix
from sharpi.settings import KvTypes
from sharpi.system.process import Closing

COLUMNS = 2048
_TRIES, _SECONDS = 3, 0.2  # the least number of tries, and the time for them


def measure_product(
    quant_type: QuantType,
    num_threads: int,
    instruction_set: str,
    rounding: Rounding,
    num_bytes: int,
) -> float:
    """Returns the bytes of weights per second, the best of a few products of `num_bytes` bytes."""
    rows = max(1, num_bytes // row_bytes(quant_type, COLUMNS))
    matrix = random_matrix(quant_type, rows)
    with RecordedProduct(matrix, instruction_set, 1, num_threads, rounding) as product:
        end, tries = time.perf_counter() + _SECONDS, [product.seconds()]
        while len(tries) <= _TRIES or time.perf_counter() < end:
            tries.append(product.seconds())
    return matrix.data.nbytes / min(tries)


def random_matrix(quant_type: QuantType, rows: int) -> Matrix:
    """Returns a matrix of random bytes 0x20 to 0x3b, so that all floats in it are finite."""
    some = np.random.default_rng(1).integers(0x20, 0x3C, 1 << 20, np.uint8)
    data = np.resize(some, rows * row_bytes(quant_type, COLUMNS))
    return Matrix("weights", quant_type, rows, COLUMNS, data)


class RecordedProduct(Closing):
    """A recorded step of one matrix product, with the thread pool that runs it."""

    def __init__(
        self,
        matrix: Matrix,
        instruction_set: str,
        tokens: int,
        threads: int,
        rounding: Rounding = "int8",
    ) -> None:
        self._program = _record(matrix, instruction_set, tokens, rounding)
        self._pool, self._threads = ThreadPool(threads), threads
        self._ids, self._none = np.arange(tokens, dtype=np.int32), np.zeros(tokens, np.int32)
        step = abi.Step(num_tokens=tokens, num_outputs=1, pages_per_sequence=1)
        step.ids = step.positions = int_pointer(self._ids)
        step.sequences = step.output_rows = step.page_table = int_pointer(self._none)
        self._step = step

    def run(self) -> None:
        """Computes the product once."""
        self._program.run(self._step, self._pool, self._threads)

    def seconds(self) -> float:
        """Computes the product once, and returns the seconds that it took."""
        start = time.perf_counter()
        self.run()
        return time.perf_counter() - start

    def close(self) -> None:
        """Frees the program and ends the threads."""
        self._program.close()
        self._pool.close()


def _record(matrix: Matrix, instruction_set: str, tokens: int, rounding: Rounding) -> Program:
    """Records a step that looks up random activations and multiplies them by the matrix."""
    activations = np.random.default_rng(2).standard_normal((tokens, COLUMNS), np.float32)
    table = Matrix(
        "activations", QuantType.F32, tokens, COLUMNS, activations.view(np.uint8).reshape(-1)
    )
    limits = ProgramLimits(tokens, 1, 64, rounding, instruction_set)
    recorder = Recorder(limits, KvCache([], 1, KvTypes()))
    (product,) = recorder.linear(recorder.embed(table, 1.0), [matrix])
    return recorder.finish(product)
