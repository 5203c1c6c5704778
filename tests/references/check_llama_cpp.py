"""Compares llama.cpp's logits for every reference file with transformers' own.

A check of the files, not of sharpi: it needs llama-cpp-python, so `make test` never runs it.
Each file is read as it is and with its weights in F32, because llama.cpp rounds activations to F16
when weights are F16: the first shows that error, the second that nothing else differs.
"""

import argparse
import tempfile
from pathlib import Path

import llama_cpp
import numpy as np
from cases import CASES, Case
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray
from requantise import requantise

F16_TOLERANCE = 5e-3
F32_TOLERANCE = 1e-5
GELU_TOLERANCE = 2e-3  # llama.cpp reads GELU from a table in F16


def main() -> None:
    """Prints one line for each case; exits 1 when one that should agree does not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent / "data")
    folder = parser.parse_args().folder
    failed = [case.name for case in CASES if not check(case, folder)]
    if failed:
        raise SystemExit(f"llama.cpp disagrees on {', '.join(failed)}")


def check(case: Case, folder: Path) -> bool:
    """Prints a case's relative errors over all tokens, from F16 and from F32 weights."""
    path = folder / f"{case.name}.gguf"
    stored = np.load(path.with_suffix(".npz"))
    with tempfile.TemporaryDirectory() as name:
        exact = requantise(path, Path(name) / "f32.gguf", GGMLQuantizationType.F32)
        f16, f32 = (
            relative_error(llama_logits(each, stored["tokens"]), stored["logits"])
            for each in (path, exact)
        )
    tolerance = GELU_TOLERANCE if case.name.startswith("gemma") else F32_TOLERANCE
    note = "" if case.llama_cpp_agrees else "  (known: llama.cpp ignores these keys)"
    print(f"{case.name:18} F16 {f16:.1e}  F32 {f32:.1e}{note}", flush=True)
    return not case.llama_cpp_agrees or (f16 < F16_TOLERANCE and f32 < tolerance)


def relative_error(logits: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """norm(logits - expected) / norm(expected)."""
    return float(np.linalg.norm(logits - expected) / np.linalg.norm(expected))


def llama_logits(path: Path, tokens: NDArray[np.int32]) -> NDArray[np.float32]:
    """Logits (tokens, vocab) of llama.cpp, with its KV cache in F32."""
    model = llama_cpp.Llama(
        str(path),
        n_ctx=max(64, len(tokens)),
        logits_all=True,
        n_threads=1,
        type_k=llama_cpp.GGML_TYPE_F32,
        type_v=llama_cpp.GGML_TYPE_F32,
        flash_attn=False,
        verbose=False,
    )
    model.eval(tokens.tolist())
    logits = np.array(model.scores[: len(tokens)], dtype=np.float32)
    model.close()
    return logits


if __name__ == "__main__":
    main()
