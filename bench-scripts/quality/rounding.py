"""Compares the loss of quality from 8-bit activations in sharpi and in llama.cpp, relative to f32.

First, `python bench-scripts/quality/perplexity_llama_cpp.py MODEL -f TEXT --save FOLDER` saves
llama.cpp's logits. This script computes the same windows in sharpi with --precision f32, int8 and
int16. KL divergences from f32 and differences of losses are computed per token, so that their
standard errors are those of rounding, not of the text.
"""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sharpi.config import Precision, RunConfig
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.measure.kv_loss import token_divergences, token_losses
from sharpi.engine.measure.perplexity import scored_logits

_WINDOW = 512
Floats = NDArray[np.float64]


def _windows(engine: Engine, text: str, count: int) -> list[NDArray[np.int32]]:
    ids = engine.tokenizer.encode(text, add_bos=engine.tokenizer.add_bos, parse_special=False)
    return np.split(np.asarray(ids[: count * _WINDOW], np.int32), count)


def _config(options: argparse.Namespace, precision: Precision) -> RunConfig:
    return RunConfig(model=options.model, context_size=_WINDOW, precision=precision, device="cpu")


def _show(name: str, divergences: list[Floats], losses: list[Floats]) -> None:
    kl, loss = np.concatenate(divergences), np.concatenate(losses)
    error = 1 / np.sqrt(len(kl))
    print(
        f"{name:10} KL divergence {kl.mean():.2e} +- {kl.std() * error:.1e},"
        f" perplexity {100 * np.expm1(loss.mean()):+.2f} % +- {100 * loss.std() * error:.2f}"
    )


def _compare(options: argparse.Namespace, precision: Precision | None) -> None:
    """Prints KL divergence and perplexity of one precision, relative to f32.

    If `precision` is None, llama.cpp's saved logits are compared instead.
    """
    divergences, differences = [], []
    with (
        load_engine(_config(options, "f32")) as exact_engine,
        load_engine(_config(options, precision or "f32")) as engine,
    ):
        text = options.file.read_text("utf-8")
        for index, window in enumerate(_windows(engine, text, options.windows)):
            exact, targets = scored_logits(exact_engine, window), window[_WINDOW // 2 + 1 :]
            theirs = options.theirs / f"{index}.npy"
            rounded = scored_logits(engine, window) if precision else np.load(theirs)
            divergences.append(token_divergences(rounded, exact))
            differences.append(token_losses(rounded, targets) - token_losses(exact, targets))
    _show(precision or "llama.cpp", divergences, differences)


def main() -> None:
    """Parses the command line and prints a line for llama.cpp and for each precision."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("-f", "--file", type=Path, required=True)
    parser.add_argument("--theirs", type=Path, required=True, help="the folder of llama.cpp's")
    parser.add_argument("--windows", type=int, default=20)
    options = parser.parse_args()
    for precision in (None, "int8", "int16"):
        _compare(options, precision)


if __name__ == "__main__":
    main()
