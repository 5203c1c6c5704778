"""Measures attention over prompts and decode at depth, with sharpi or with llama.cpp.

`python bench-scripts/cpu/depth.py MODEL -d 32768 --type q8_0` prints one line of JSON with seconds
of one thread's CPU time, on which a busy machine has little influence. `--engine llama.cpp` does
the same with llama-cpp-python and flash attention. The attention time of a prompt is its total time
minus that of as many batches at depth 0.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_BATCH, _DECODED = 512, 33
Compute = Callable[[list[int], int], None]  # tokens that follow the first `position`


def main() -> None:
    """Parses the command line and prints the times of one engine and one KV cache type."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("-d", "--depth", type=int, default=32768)
    parser.add_argument("--type", default="f16", choices=["f16", "q8_0", "q4_0"])
    parser.add_argument("--engine", default="sharpi", choices=["sharpi", "llama.cpp"])
    options = parser.parse_args()
    opened = _sharpi if options.engine == "sharpi" else _llama_cpp
    compute = opened(options.model, options.depth + _BATCH, options.type)
    ids = np.random.default_rng(1).integers(300, 1500, options.depth + _DECODED).tolist()
    print(json.dumps({"engine": options.engine, "type": options.type} | _times(compute, ids)))


def _times(compute: Compute, ids: list[int]) -> dict[str, float]:
    depth = len(ids) - _DECODED
    batch = min(_seconds(compute, ids[:_BATCH], 0) for _ in range(3))
    prefill = sum(_seconds(compute, ids[at : at + _BATCH], at) for at in range(0, depth, _BATCH))
    decode = sum(_seconds(compute, ids[at : at + 1], at) for at in range(depth, len(ids)))
    return {
        "prefill": prefill,
        "attention of prefill": prefill - batch * depth / _BATCH,
        "a decoded token": decode / _DECODED,
    }


def _seconds(compute: Compute, ids: list[int], position: int) -> float:
    start = time.process_time()
    compute(ids, position)
    return time.process_time() - start


def _sharpi(model: Path, context: int, kind: Any) -> Compute:
    from sharpi.config import RunConfig
    from sharpi.engine.loader import load_engine
    from sharpi.engine.sequence import Sequence

    config = RunConfig(model=model, context_size=context, kv_type=kind, device="cpu", num_threads=1)
    sequence = Sequence(load_engine(config).runner)

    def compute(ids: list[int], position: int) -> None:
        if position != len(sequence.tokens):
            sequence.truncate(position)
        sequence.extend(ids)

    return compute


def _llama_cpp(model: Path, context: int, kind: str) -> Compute:
    from ctypes import c_int32

    import llama_cpp

    llama_cpp.llama_backend_init()
    loading = llama_cpp.llama_model_default_params()
    loading.n_gpu_layers = 0
    loaded = llama_cpp.llama_model_load_from_file(str(model).encode(), loading)
    options = llama_cpp.llama_context_default_params()
    options.n_ctx, options.n_batch, options.n_ubatch = context, _BATCH, _BATCH
    options.n_threads = options.n_threads_batch = 1
    options.type_k = options.type_v = getattr(llama_cpp, f"GGML_TYPE_{kind.upper()}")
    options.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
    opened = llama_cpp.llama_init_from_model(loaded, options)

    def compute(ids: list[int], position: int) -> None:
        llama_cpp.llama_memory_seq_rm(llama_cpp.llama_get_memory(opened), 0, position, -1)
        array = (c_int32 * len(ids))(*ids)  # the batch only points to it
        batch = llama_cpp.llama_batch_get_one(array, len(ids))
        if llama_cpp.llama_decode(opened, batch):
            raise SystemExit("llama.cpp cannot decode the ids")
        llama_cpp.llama_synchronize(opened)

    return compute


if __name__ == "__main__":
    main()
