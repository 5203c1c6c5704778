"""Runs all kinds of kernels briefly on a few tiny models, for compute-sanitizer.

Batches are too small for the GPU's libraries, so that only sharpi's kernels are checked.
"""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

from gpu.engines import Engines, device_opener, step_by_step
from gpu.models import REFERENCES, SMALL
from synthetic_moe import write_model

from sharpi.gguf.quant_types import QuantType

_CASES = ("qwen3moe", "gpt-oss", "gemma3", "qwen2moe")
_TYPES = (None, QuantType.Q8_0, QuantType.MXFP4)
_BATCH, _DECODED = 16, 3


def main() -> None:
    """Parses the command line and runs every model once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    device = device_opener(options.dry_run)(0)
    engines = Engines(lambda _: device)
    for case in _CASES[:1] if options.dry_run else _CASES:
        _run(engines, REFERENCES / f"{case}.gguf")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        for quant_type in _TYPES[:1] if options.dry_run else _TYPES:
            write_model(path, SMALL, quant_type, pool_bytes=1 << 20)
            _run(engines, path, moe_slots=4)
    print("done")


def _run(engines: Engines, path: Path, **options: int) -> None:
    """Runs prefill of a batch whose tokens share experts, then decode of single tokens."""
    with engines.on_gpu(path, batch_size=_BATCH, context_size=64, **options) as engine:
        ids = np.arange(3, 3 + _BATCH, dtype=np.int32)
        engine.logits(ids)
        step_by_step(engine, ids[:_DECODED])


if __name__ == "__main__":
    main()
