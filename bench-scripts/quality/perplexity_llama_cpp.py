"""Computes the perplexity of a GGUF over a text with llama.cpp, like its perplexity tool.

Prints the perplexity so far after every window, to compare with `sharpi perplexity`. Each window of
`--context` tokens starts from an empty KV cache, and its first token is replaced by BOS if the
vocabulary adds one. Predictions of the second half count, beginning with the token after the middle
one. `--save FOLDER` saves the logits of these predictions for rounding.py.
"""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import llama_cpp
import numpy as np
from numpy.typing import NDArray


def main() -> None:
    """Parses the command line and prints one line for each window."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("-f", "--file", type=Path, required=True, help="UTF-8 text")
    parser.add_argument("-c", "--context", type=int, default=512)
    parser.add_argument("--windows", type=int, default=20)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--save", type=Path, help="a folder for the logits, one file a window")
    arguments = parser.parse_args()
    model = open_model(arguments.model, arguments.context, arguments.threads)
    adds_bos = llama_cpp.llama_vocab_get_add_bos(model._model.vocab)
    ids = model.tokenize(arguments.file.read_bytes(), add_bos=adds_bos, special=False)
    total, count = 0.0, 0
    for index, window in enumerate(split(ids, arguments.context, arguments.windows)):
        if adds_bos:
            window[0] = model.token_bos()
        logits = window_logits(model, window)
        if arguments.save:
            np.save(arguments.save / f"{index}.npy", logits)
        losses = token_losses(logits, np.array(window[len(window) // 2 + 1 :]))
        total, count = total + float(losses.sum()), count + len(losses)
        print(f"[{index + 1}] {losses.mean():.4f} nats/token, so far {math.exp(total / count):.4f}")


def open_model(path: Path, context: int, threads: int) -> llama_cpp.Llama:
    """Opens the model with a context of one window, which is computed in one batch."""
    return llama_cpp.Llama(
        str(path),
        n_ctx=context,
        n_batch=context,
        n_ubatch=context,
        n_threads=threads,
        n_threads_batch=threads,
        logits_all=True,
        verbose=False,
    )


def split(ids: list[int], context: int, max_windows: int) -> Iterator[list[int]]:
    """Yields the complete windows of `context` tokens in the text, at most `max_windows`."""
    for index in range(min(max_windows, len(ids) // context)):
        yield ids[index * context : (index + 1) * context]


def window_logits(model: llama_cpp.Llama, window: list[int]) -> NDArray[np.float32]:
    """Returns the logits (tokens, vocabulary) that predict the tokens after the window's middle."""
    model.reset()
    model.eval(window)
    return model.scores[len(window) // 2 : len(window) - 1]


def token_losses(
    predicted: NDArray[np.float32], targets: NDArray[np.integer]
) -> NDArray[np.float64]:
    """Returns the negative log-likelihoods of the targets, in nats."""
    logits = predicted.astype(np.float64)
    peak = logits.max(axis=1)
    normaliser = peak + np.log(np.exp(logits - peak[:, None]).sum(axis=1))
    return normaliser - logits[np.arange(len(targets)), targets]


if __name__ == "__main__":
    main()
