"""Compares sharpi's and ggml's matrix kernels in alternating runs on the same random blocks.

Both use one thread. --ggml is a folder with libggml-base.so and libggml-cpu.so, built for the
instruction set in --isa. ggml multiplies weights in their layout in the file, without the repacking
at load that it has for some types.
"""

import argparse
import ctypes
import statistics
import time
from pathlib import Path

import numpy as np

from kernels import has, quantised_types, type_list
from sharpi.gguf.quant_types import QuantType, row_bytes
from sharpi.hardware.product_rate import RecordedProduct, random_matrix
from sharpi.ops.interface import Matrix

_COLUMNS = 2048
_BYTES = {1: 64 << 20, 2: 32 << 20, 4: 32 << 20, 8: 16 << 20}  # of weights, by tokens
_FEW_BYTES = 1 << 20  # for larger batches
_F32 = 0
_RETURN_POINTERS: tuple[str, ...] = ("ggml_init", "ggml_new_tensor_2d", "ggml_mul_mat")
_RETURN_POINTERS += ("ggml_new_graph", "ggml_get_data")


class _Parameters(ctypes.Structure):
    """The struct ggml_init_params of ggml.h, the parameters of a context."""

    _fields_ = [
        ("mem_size", ctypes.c_size_t),
        ("mem_buffer", ctypes.c_void_p),
        ("no_alloc", ctypes.c_bool),
    ]


class Ggml:
    """A loaded build of ggml that multiplies matrices."""

    def __init__(self, folder: Path) -> None:
        self._base = ctypes.CDLL(str(folder / "libggml-base.so"), ctypes.RTLD_GLOBAL)
        self._cpu = ctypes.CDLL(str(folder / "libggml-cpu.so"))
        self._cpu.ggml_cpu_init()
        for name in _RETURN_POINTERS:
            getattr(self._base, name).restype = ctypes.c_void_p
        self._base.ggml_init.argtypes = [_Parameters]
        self._base.ggml_new_tensor_2d.argtypes = [
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_int64,
            ctypes.c_int64,
        ]

    def product(self, matrix: Matrix, tokens: int) -> "GgmlProduct":
        return GgmlProduct(self._base, self._cpu, matrix, tokens)


class GgmlProduct:
    """A ggml context with a matrix, activations and a graph that multiplies them."""

    def __init__(self, base: ctypes.CDLL, cpu: ctypes.CDLL, matrix: Matrix, tokens: int) -> None:
        self._base, self._cpu = base, cpu
        room = 2 * matrix.data.nbytes + 16 * tokens * (matrix.rows + _COLUMNS) + (64 << 20)
        self._context = ctypes.c_void_p(base.ggml_init(_Parameters(room, None, False)))
        weights = self._tensor(int(matrix.quant_type), matrix.rows)
        activations = self._tensor(_F32, tokens)
        ctypes.memmove(base.ggml_get_data(weights), matrix.data.ctypes.data, matrix.data.nbytes)
        values = np.random.default_rng(2).standard_normal((tokens, _COLUMNS), np.float32)
        ctypes.memmove(base.ggml_get_data(activations), values.ctypes.data, values.nbytes)
        out = ctypes.c_void_p(base.ggml_mul_mat(self._context, weights, activations))
        self._graph = ctypes.c_void_p(base.ggml_new_graph(self._context))
        base.ggml_build_forward_expand(self._graph, out)

    def _tensor(self, kind: int, rows: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._base.ggml_new_tensor_2d(self._context, kind, _COLUMNS, rows))

    def run(self) -> None:
        if self._cpu.ggml_graph_compute_with_ctx(self._context, self._graph, 1):
            raise RuntimeError("ggml could not compute the product")

    def close(self) -> None:
        self._base.ggml_free(self._context)


def main() -> None:
    """Parses the command line and prints a line for each type."""
    options = parse_options()
    if not has(options.isa):
        raise SystemExit(f"error: this processor has no {options.isa}")
    ggml = Ggml(options.ggml)
    print(
        "type     "
        + "".join(f"{f'T={tokens}: sharpi, ggml, ratio':>34}" for tokens in options.tokens)
    )
    for quant_type in options.types or quantised_types():
        cells = [cell(ggml, quant_type, options.isa, t, options.rounds) for t in options.tokens]
        print(f"{quant_type.name:<9}" + "".join(f"{text:>34}" for text in cells), flush=True)


def parse_options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ggml", type=Path, required=True, metavar="DIR")
    parser.add_argument("--isa", required=True)
    parser.add_argument("--types", type=type_list, metavar="Q4_K,...")
    parser.add_argument("--tokens", type=_numbers, default="1,4,8,512", metavar="N,...")
    parser.add_argument("-r", "--rounds", type=int, default=5)
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def cell(ggml: Ggml, quant_type: QuantType, isa: str, tokens: int, rounds: int) -> str:
    """Measures a type; returns sharpi's rate, ggml's rate and their median ratio, as text.

    Rates are GB/s of weights below 64 tokens, and GOP/s from there on.
    """
    matrix = random_matrix(
        quant_type, _BYTES.get(tokens, _FEW_BYTES) // row_bytes(quant_type, _COLUMNS) // 32 * 32
    )
    ours, theirs = seconds(
        RecordedProduct(matrix, isa, tokens, threads=1), ggml.product(matrix, tokens), rounds
    )
    work = matrix.data.nbytes if tokens < 64 else 2 * tokens * matrix.rows * _COLUMNS
    ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
    rates = [work / statistics.median(each) / 1e9 for each in (ours, theirs)]
    return f"{rates[0]:.2f} {rates[1]:.2f} {ratio:.2f}"


def seconds(
    ours: RecordedProduct, theirs: GgmlProduct, rounds: int
) -> tuple[list[float], list[float]]:
    """Returns sharpi's and ggml's seconds in each round, after a warm-up round."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds + 1):
        for each, kept in zip((ours, theirs), times, strict=True):
            start = time.thread_time()
            each.run()
            kept.append(time.thread_time() - start)
    ours.close()
    theirs.close()
    return times[0][1:], times[1][1:]


if __name__ == "__main__":
    main()
