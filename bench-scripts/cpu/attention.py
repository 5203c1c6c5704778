"""Measures attention over the KV cache at a depth, for each type of keys and values.

`python bench-scripts/cpu/attention.py --depth 32768` runs decode steps, `--tokens 128` prefill
steps. No model is read: the pages are filled with a pattern, and a step computes only queries,
the new keys and values, and attention. The types alternate in rounds. Medians are printed with the
speed relative to the first type; `--best` prints the shortest times instead, for busy machines.
"""

import argparse
import statistics
import time
from typing import Any

import numpy as np

from sharpi.gguf.quant_types import QuantType
from sharpi.ops.attention_shape import AttentionShape
from sharpi.ops.cpu import abi
from sharpi.ops.cpu.kv_cache import KV_FORMATS, PAGE_POSITIONS, KvCache, kv_bytes
from sharpi.ops.cpu.library import ThreadPool
from sharpi.ops.cpu.program import Program, ProgramLimits, int_pointer
from sharpi.ops.cpu.recorder import Recorder
from sharpi.ops.interface import Matrix
from sharpi.settings import KvTypes

_PATTERN = 0x21  # as f16 0.01: neither zero nor slow to compute with
_VOCABULARY = 64


class Case:
    """A recorded program of attention steps with one pair of key and value types."""

    def __init__(self, types: KvTypes, options: argparse.Namespace) -> None:
        self.types = types
        shapes = [
            AttentionShape(layer, options.heads, options.kv_heads, options.dim, options.dim, 0.09)
            for layer in range(options.layers)
        ]
        self.num_pages = -(-(options.depth + options.tokens) // PAGE_POSITIONS)
        self.num_bytes = kv_bytes(shapes, options.depth, types)
        self.cache = KvCache(shapes, self.num_pages, types)
        for layer in self.cache.layers.values():
            layer[:] = _PATTERN
        limits = ProgramLimits(
            options.tokens,
            options.tokens,
            self.num_pages * PAGE_POSITIONS,
            options.precision,
            options.isa,
        )
        recorder = Recorder(limits, self.cache)
        self.program: Program = recorder.finish(_model(recorder, shapes))

    def seconds(self, step: abi.Step, pool: ThreadPool, num_threads: int) -> float:
        """Runs the step once and returns its time in seconds."""
        start = time.perf_counter()
        self.program.run(step, pool, num_threads)
        return time.perf_counter() - start


def _model(ops: Any, shapes: list[AttentionShape]) -> Any:
    total = None
    for shape in shapes:
        rows = (shape.num_heads * shape.key_dim, shape.num_kv_heads * shape.key_dim)
        q, k, v = (ops.embed(_table(width), 1.0) for width in (rows[0], rows[1], rows[1]))
        out = ops.attention(q, k, v, shape)
        total = out if total is None else ops.add(total, out, 1.0)
    return ops.select_outputs(total)


def _table(width: int) -> Matrix:
    values = np.random.default_rng(width).standard_normal((_VOCABULARY, width)).astype(np.float32)
    return Matrix("w", QuantType.F32, _VOCABULARY, width, values.view(np.uint8).reshape(-1), None)


def _step(options: argparse.Namespace, num_pages: int) -> tuple[abi.Step, list[np.ndarray]]:
    """Returns the arguments of a step after `depth` positions, and the arrays they point to."""
    tokens = options.tokens
    ids = np.arange(tokens, dtype=np.int32) % _VOCABULARY
    positions = np.arange(options.depth, options.depth + tokens, dtype=np.int32)
    sequences, pages = np.zeros(tokens, np.int32), np.arange(num_pages, dtype=np.int32)
    step = abi.Step(
        num_tokens=tokens, num_outputs=1, ids=int_pointer(ids), positions=int_pointer(positions),
        sequences=int_pointer(sequences), output_rows=int_pointer(sequences),
        page_table=int_pointer(pages), pages_per_sequence=num_pages,
    )  # fmt: skip
    return step, [ids, positions, sequences, pages]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (
        ("--depth", 32768), ("--tokens", 1), ("--heads", 32), ("--kv-heads", 4), ("--dim", 128),
        ("--layers", 2), ("--threads", 2), ("--rounds", 15),
    ):  # fmt: skip
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--precision", default="int8", choices=("int8", "int16", "f32"))
    parser.add_argument("--isa", default=None)
    parser.add_argument("--best", action="store_true")
    parser.add_argument("--types", nargs="*", default=list(KV_FORMATS))
    return parser.parse_args()


def main() -> None:
    """Parses the command line and prints time, rate and relative speed for each type."""
    options = _options()
    pool = ThreadPool(options.threads, ())
    cases = [Case(KvTypes(kind, kind), options) for kind in options.types]
    step, _kept = _step(options, cases[0].num_pages)
    times: dict[str, list[float]] = {str(case.types): [] for case in cases}
    for _ in range(options.rounds):
        for case in cases:
            times[str(case.types)].append(case.seconds(step, pool, options.threads))
    first = times[str(cases[0].types)]
    for case in cases:
        own = times[str(case.types)]
        ratio = statistics.median(a / b for a, b in zip(first, own, strict=True))
        shown = statistics.median(own)
        if options.best:
            ratio, shown = min(first) / min(own), min(own)
        rate = case.num_bytes / shown / 1e9
        print(f"{case.types!s:8} {shown * 1e3:9.2f} ms {rate:6.1f} GB/s {ratio:6.2f} x")
    pool.close()


if __name__ == "__main__":
    main()
