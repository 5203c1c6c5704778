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
from sharpi.errors import UsageError

Logits = npt.NDArray[np.float32]
_ROWS = 128  # that are converted to float64 at once


class KvLoss(Struct, frozen=True):
    """Sums over scored tokens, for the means of divergence, agreement and perplexity."""

    num_tokens: int = 0
    divergence_sum: float = 0.0  # in nats
    num_agreeing: int = 0  # tokens whose most probable successor is the same
    reference_nll_sum: float = 0.0

    @property
    def divergence(self) -> float:
        """The mean KL divergence of the probabilities from the reference's."""
        return self.divergence_sum / self.num_tokens

    @property
    def agreement(self) -> float:
        """The fraction of tokens for which both engines' most likely token is the same."""
        return self.num_agreeing / self.num_tokens

    @property
    def reference_perplexity(self) -> float:
        return float(np.exp(self.reference_nll_sum / self.num_tokens))

    def plus(self, logits: Logits, reference: Logits, targets: npt.NDArray[np.int32]) -> "KvLoss":
        """Adds tokens, by logits (tokens, vocabulary) of both engines and targets (tokens,)."""
        nll = token_losses(reference, targets)
        agreeing = int((logits.argmax(axis=1) == reference.argmax(axis=1)).sum())
        return KvLoss(
            self.num_tokens + len(targets),
            self.divergence_sum + float(token_divergences(logits, reference).sum()),
            self.num_agreeing + agreeing,
            self.reference_nll_sum + float(nll.sum()),
        )


def token_losses(logits: Logits, targets: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
    """Returns the negative log-likelihood of each target, given logits (tokens, vocabulary)."""
    rows = (_log_probabilities(part) for part in _parts(logits))
    ids = (targets[at : at + _ROWS] for at in range(0, len(targets), _ROWS))
    losses = [-row[np.arange(len(id_)), id_] for row, id_ in zip(rows, ids, strict=True)]
    return np.concatenate(losses)


def token_divergences(logits: Logits, reference: Logits) -> npt.NDArray[np.float64]:
    """Returns the KL divergence (tokens,) of logits (tokens, vocabulary) from reference ones."""
    pairs = zip(_parts(logits), _parts(reference), strict=True)
    return np.concatenate([_divergences(*pair) for pair in pairs])


def _parts(logits: Logits) -> Iterator[Logits]:
    for at in range(0, len(logits), _ROWS):
        yield logits[at : at + _ROWS]


def _log_probabilities(logits: Logits) -> npt.NDArray[np.float64]:
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    return np.asarray(wide - np.log(np.exp(wide).sum(axis=1, keepdims=True)))


def _divergences(logits: Logits, reference: Logits) -> npt.NDArray[np.float64]:
    expected = _log_probabilities(reference)
    return np.asarray((np.exp(expected) * (expected - _log_probabilities(logits))).sum(axis=1))


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
    """Scores ids (tokens,) by windows, also against `reference`; raises UsageError if too short."""
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
