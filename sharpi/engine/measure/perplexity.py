"""Computes perplexity over windows of a text, as llama.cpp's tool does.

Windows do not overlap. If the model uses BOS, it replaces a window's first token. The second half
is scored, so that every scored token has at least half a window before it.
"""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.engine.engine import Engine
from sharpi.errors import UsageError


class WindowScore(Struct, frozen=True):
    """Totals up to window `index` of `count`."""

    index: int
    count: int
    num_tokens: int
    nll: float
    perplexity_so_far: float
    error: float  # one standard error


def perplexity_windows(
    engine: Engine, ids: npt.NDArray[np.int32], window: int
) -> Iterator[WindowScore]:
    """Scores ids (tokens,) window by window; raises UsageError if the text is too short."""
    count = len(ids) // window
    if window < 4 or count < 1:
        raise UsageError(f"the text has {len(ids)} tokens; perplexity needs a window of {window}")
    if window > engine.context_size:
        raise UsageError(f"a window of {window} does not fit the context of {engine.context_size}")
    total = squares = 0.0
    scored = 0
    for index in range(count):
        losses = _window_losses(engine, ids[index * window : (index + 1) * window])
        scored += len(losses)
        total += float(losses.sum())
        squares += float((losses**2).sum())
        mean = total / scored
        deviation = math.sqrt(max(squares / scored - mean**2, 0.0) / max(scored - 1, 1))
        perplexity = math.exp(mean)
        yield WindowScore(index, count, scored, mean, perplexity, perplexity * deviation)


def _window_losses(engine: Engine, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
    """Returns the negative log-likelihood of each token of the second half but its first."""
    inputs = ids.copy()
    bos_id = engine.tokenizer.bos_id
    if engine.tokenizer.add_bos and bos_id is not None:
        inputs[0] = bos_id
    first = len(ids) // 2
    logits = engine.logits(inputs)[first:-1].astype(np.float64)
    targets = ids[first + 1 :]
    peaks = logits.max(axis=1, keepdims=True)
    log_totals = np.log(np.exp(logits - peaks).sum(axis=1)) + peaks[:, 0]
    return np.asarray(log_totals - logits[np.arange(len(targets)), targets])
