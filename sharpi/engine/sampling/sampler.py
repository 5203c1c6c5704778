"""Chooses the next token: penalties, then top-k, top-p, min-p, then temperature, as llama.cpp does.

Every filter is a function from candidates to fewer candidates; the order is llama.cpp's default.
"""

from collections import Counter, deque
from collections.abc import Iterable
from random import Random  # NumPy's own takes 10 ms to import, which the first token would wait for

import numpy as np
import numpy.typing as npt

from sharpi.config import SamplingParams
from sharpi.errors import ModelFileError

FloatArray = npt.NDArray[np.float32]
IdArray = npt.NDArray[np.int64]

_COLUMN = 64  # logits that top-k passes over together

NOT_FINITE = (
    "the model computes logits that are not finite numbers; its file may be damaged,"
    " so download or convert it again"
)


class Sampler:
    """Chooses tokens for one answer, with its own random state and memory of recent tokens."""

    def __init__(self, params: SamplingParams, history: Iterable[int] = ()) -> None:
        self._params = params
        self._random = Random(params.seed)
        last_n = params.penalty_last_n
        self._recent: deque[int] = deque(history, maxlen=None if last_n < 0 else last_n)

    @property
    def takes_largest(self) -> bool:
        """True if every choice is the largest logit, so that `accept` may replace `sample`."""
        return self._params.temperature <= 0 and not self._has_penalties

    def accept(self, token: int) -> None:
        """Adds a token that the caller has chosen to the recent tokens."""
        self._recent.append(token)

    def sample(self, logits: FloatArray) -> int:
        """Chooses the next token by logits (vocabulary,), which are left as they are.

        Raises ModelFileError if the largest logit is not finite, as with damaged weights.
        """
        if not np.isfinite(logits.max()):
            raise ModelFileError(NOT_FINITE)
        p = self._params
        if self._penalises():
            logits = self._penalise(logits)
        greedy = p.temperature <= 0
        token = int(np.argmax(logits)) if greedy else self._draw(*candidates(logits, p))
        self._recent.append(token)
        return token

    def _draw(self, ids: IdArray, scores: FloatArray) -> int:
        weights = softmax(scores / self._params.temperature)
        cumulative = np.cumsum(weights, dtype=np.float64)
        at = np.searchsorted(cumulative, self._random.random() * cumulative[-1], side="right")
        return int(ids[min(int(at), len(ids) - 1)])

    def _penalises(self) -> bool:
        return bool(self._recent) and self._has_penalties

    @property
    def _has_penalties(self) -> bool:
        p = self._params
        return (p.repeat_penalty, p.presence_penalty, p.frequency_penalty) != (1, 0, 0)

    def _penalise(self, logits: FloatArray) -> FloatArray:
        counts = Counter(self._recent)
        ids = np.fromiter(counts, np.int64, len(counts))
        times = np.fromiter(counts.values(), np.float32, len(counts))
        p, penalised = self._params, logits.copy()
        seen = logits[ids]
        seen = np.where(seen <= 0, seen * p.repeat_penalty, seen / p.repeat_penalty)
        penalised[ids] = seen - times * p.frequency_penalty - p.presence_penalty
        return penalised


def softmax(scores: FloatArray) -> FloatArray:
    """Turns scores (n,) into probabilities."""
    e = np.exp(scores - scores.max())
    return np.asarray(e / e.sum(), dtype=np.float32)


def candidates(logits: FloatArray, params: SamplingParams) -> tuple[IdArray, FloatArray]:
    """Filters the logits; returns the ids and logits left, best first, ties by id, never empty.

    Masked tokens, whose logit is -inf, are always dropped.
    """
    ids = top_k(logits, params.top_k)
    ids = ids[logits[ids] > -np.inf]
    scores = logits[ids]
    if params.top_p < 1:
        keep = top_p(scores, params.top_p)
        ids, scores = ids[:keep], scores[:keep]
    if params.min_p > 0:
        keep = min_p(scores, params.min_p)
        ids, scores = ids[:keep], scores[:keep]
    return ids, scores


def top_k(logits: FloatArray, k: int) -> IdArray:
    """Finds the ids of the k largest logits, best first; k of 0 or less keeps all."""
    if k <= 0 or k >= len(logits):
        return np.argsort(-logits, kind="stable")
    ids = _promising(logits, k)
    scores = logits[ids]
    ids = ids[scores >= _kth_largest(scores, k)]
    return ids[np.argsort(-logits[ids], kind="stable")][:k]


def _promising(logits: FloatArray, k: int) -> IdArray:
    """Preselects ids in ascending order, the k largest logits among them.

    The logits are laid out in columns, and a column is kept if its maximum is one of the k largest
    maxima: one pass over a large vocabulary, in a sixth of the time of partitioning it.
    """
    width = len(logits) // _COLUMN
    if width <= k:
        return np.arange(len(logits))
    peaks = logits[: width * _COLUMN].reshape(_COLUMN, width).max(axis=0)
    columns = np.flatnonzero(peaks >= _kth_largest(peaks, k))
    ids = np.arange(_COLUMN)[:, None] * width + columns
    return np.concatenate([ids.ravel(), np.arange(width * _COLUMN, len(logits))])


def _kth_largest(values: FloatArray, k: int) -> np.float32:
    return np.float32(np.partition(values, len(values) - k)[len(values) - k])


def top_p(scores: FloatArray, p: float) -> int:
    """Counts the sorted scores that reach the probability p together; at least one."""
    return int(np.searchsorted(np.cumsum(softmax(scores)), p) + 1)


def min_p(scores: FloatArray, p: float) -> int:
    """Counts the sorted scores with at least p times the best one's probability."""
    return max(1, int(np.count_nonzero(scores >= scores[0] + np.log(np.float32(p)))))
