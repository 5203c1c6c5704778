"""Computes perplexity over windows of a text, as llama.cpp's tool does.

Windows do not overlap. If the model uses BOS, it replaces a window's first token. The second half
of each window is scored, so that every scored token has at least half a window before it. With
`--kv-keep` the first half is the prompt of which heads drop keys and values.
"""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.engine.engine import Engine
from sharpi.engine.measure.kv_loss import KvLoss, Logits, token_losses
from sharpi.errors import UsageError


class WindowScore(Struct, frozen=True):
    """The scores of all windows up to window `index` of `count`."""

    index: int
    count: int
    num_tokens: int
    nll: float  # mean negative log-likelihood of a token
    perplexity_so_far: float
    error: float  # one standard error
    loss: KvLoss | None = None  # against the reference engine, if there is one


def perplexity_windows(
    engine: Engine, ids: npt.NDArray[np.int32], window: int, reference: Engine | None = None
) -> Iterator[WindowScore]:
    """Scores ids (tokens,) window by window; raises UsageError if the text is too short.

    `reference`: an engine of the same model; its probabilities are compared with those of `engine`.
    """
    count = len(ids) // window
    if window < 4 or count < 1:
        raise UsageError(f"the text has {len(ids)} tokens; perplexity needs a window of {window}")
    if window > engine.context_size:
        raise UsageError(f"a window of {window} does not fit the context of {engine.context_size}")
    total = squares = 0.0
    scored = 0
    loss = None if reference is None else KvLoss()
    for index in range(count):
        ids_here = ids[index * window : (index + 1) * window]
        logits, targets = scored_logits(engine, ids_here), ids_here[window // 2 + 1 :]
        if reference is not None and loss is not None:
            loss = loss.plus(logits, scored_logits(reference, ids_here), targets)
        losses = token_losses(logits, targets)
        scored += len(losses)
        total += float(losses.sum())
        squares += float((losses**2).sum())
        mean = total / scored
        deviation = math.sqrt(max(squares / scored - mean**2, 0.0) / max(scored - 1, 1))
        perplexity = math.exp(mean)
        yield WindowScore(index, count, scored, mean, perplexity, perplexity * deviation, loss)


def scored_logits(engine: Engine, ids: npt.NDArray[np.int32]) -> Logits:
    """Returns the logits (tokens, vocabulary) after each token of the second half but the last."""
    inputs = ids.copy()
    bos_id = engine.tokenizer.bos_id
    if engine.tokenizer.add_bos and bos_id is not None:
        inputs[0] = bos_id
    return engine.logits(inputs, len(ids) // 2)[len(ids) // 2 : -1]
