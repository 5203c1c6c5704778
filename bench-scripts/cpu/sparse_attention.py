"""Measures attention over the positions that an indexer chose, beside attention over all.

`python bench-scripts/cpu/sparse_attention.py --depth 32768` runs decode steps of a layer of each
family that has indexers, `--tokens 128` prefill steps. No model is read: the pages are filled with
random keys and values. Both kinds alternate in rounds; medians are printed, their ratio, and the
bytes of keys and values that a token reads. One thread's time is that of its processor.
"""

import argparse
import statistics
import time
from typing import Any

import numpy as np
from attention import _step, _table
from msgspec.structs import replace

from sharpi.ops.attention_shape import AttentionShape, IndexShape
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS, KvCache, kv_bytes
from sharpi.ops.cpu.library import ThreadPool
from sharpi.ops.cpu.program import ProgramLimits
from sharpi.ops.cpu.recorder import Recorder
from sharpi.settings import F16_TYPES

# The released sizes.
_LIGHTNING = IndexShape(64, 128, 0.011, 2048)
_LATENT = AttentionShape(
    0, 128, 1, 576, 512, 0.04, values_in_keys=True, index=_LIGHTNING, is_sparse=True
)
_BLOCKS = IndexShape(4, 128, 1.0, 16, block=128, num_local=1, is_joint=False)
FAMILIES = {
    "deepseek32": _LATENT,
    "glm-dsa": replace(_LATENT, num_heads=64, index=replace(_LIGHTNING, num_heads=32)),
    "minimax-m3": AttentionShape(0, 64, 4, 128, 128, 0.09, index=_BLOCKS),
}


def _model(ops: Any, shape: AttentionShape, *, chooses: bool) -> Any:
    index, heads = shape.index, shape.num_heads
    assert index is not None
    q, k = (ops.embed(_table(n * shape.key_dim), 1.0) for n in (heads, shape.num_kv_heads))
    v = None if shape.values_in_keys else ops.embed(_table(shape.num_kv_heads * shape.value_dim), 1)
    chosen = None
    if chooses:
        of_index = ops.embed(_table(index.num_heads * index.key_dim), 1.0)
        weights = ops.embed(_table(index.num_heads), 1.0) if index.is_joint else None
        chosen = ops.choose(
            lambda: ops.embed(_table(index.key_dim), 1.0), lambda: (of_index, weights), shape
        )
    return ops.select_outputs(ops.attention(q, k, v, shape, chosen=chosen))


def _bytes_read(shape: AttentionShape) -> tuple[int, int]:
    """Returns the bytes of keys and values of the chosen positions, and of one index key."""
    index = shape.index
    assert index is not None
    plain = replace(shape, index=None)
    a_key = (
        kv_bytes([shape], PAGE_POSITIONS) - kv_bytes([plain], PAGE_POSITIONS)
    ) // PAGE_POSITIONS
    return kv_bytes([plain], index.num_positions), a_key


def measure(name: str, options: argparse.Namespace, pool: ThreadPool) -> None:
    """Prints a line for one family."""
    shape = FAMILIES[name]
    num_pages = -(-(options.depth + options.tokens) // PAGE_POSITIONS)
    cache = KvCache([shape], num_pages, F16_TYPES)
    pages = cache.layers[0].view(np.uint16)
    pages[:] = (
        np.random.default_rng(0).standard_normal(pages.shape[1]).astype(np.float16).view("u2")
    )
    for page in range(num_pages):  # other keys in each page
        pages[page] = np.roll(pages[page], 16 * page)
    limits = ProgramLimits(
        options.tokens, options.tokens, num_pages * PAGE_POSITIONS, options.precision
    )
    step, _kept = _step(options, num_pages)
    programs = []
    for chooses in (False, True):
        recorder = Recorder(limits, cache)
        programs.append(recorder.finish(_model(recorder, shape, chooses=chooses)))
    times: list[list[float]] = [[], []]
    clock = time.process_time if options.threads == 1 else time.perf_counter
    for _ in range(options.rounds):
        for own, program in zip(times, programs, strict=True):
            start = clock()
            program.run(step, pool, options.threads)
            own.append(clock() - start)
    full, sparse = (1e3 * statistics.median(own) for own in times)
    chosen, key = _bytes_read(shape)
    keys = options.depth * key
    whole = kv_bytes([replace(shape, index=None)], options.depth)
    print(
        f"{name:11} {full:8.2f} ms against {sparse:7.2f}: {full / sparse:5.2f} x; reads"
        f" {chosen / 1e6:.1f} of {whole / 1e6:.1f} MB, {keys / 1e6:.1f} of index keys"
    )


def main() -> None:
    """Parses the command line and measures each family."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("--depth", 32768), ("--tokens", 1), ("--threads", 2), ("--rounds", 15)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--precision", default="int8", choices=("int8", "int16", "f32"))
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    options = parser.parse_args()
    pool = ThreadPool(options.threads, ())
    for name in options.families:
        measure(name, options, pool)
    pool.close()


if __name__ == "__main__":
    main()
