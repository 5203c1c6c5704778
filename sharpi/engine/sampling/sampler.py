"""Chooses an answer's tokens: bias and constraint, penalties, filters, then temperature.

The order of the filters is llama.cpp's default.
"""

from collections import Counter, deque
from collections.abc import Iterable
from random import Random

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.constraints.constraint import Constraint, TokenMask
from sharpi.errors import ModelFileError, UsageError
from sharpi.settings import GenerationRequest, SamplingParams

FloatArray = npt.NDArray[np.float32]
IdArray = npt.NDArray[np.int64]

_COLUMN = 64  # logits that top-k passes over together


def softmax(scores: FloatArray) -> FloatArray:
    """Turns scores (n,) into probabilities."""
    e = np.exp(scores - scores.max())
    return np.asarray(e / e.sum(), dtype=np.float32)


def candidates(logits: FloatArray, params: SamplingParams) -> tuple[IdArray, FloatArray]:
    """Filters logits; returns ids and logits left but masked ones, best first, never empty."""
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
    """Returns ids in ascending order, among them those of the k largest logits."""
    # A column stays if its maximum is one of the k largest: a sixth of the time of partitioning.
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
    """Returns how many of the sorted scores together reach the probability p; at least one."""
    return int(np.searchsorted(np.cumsum(softmax(scores)), p) + 1)


def min_p(scores: FloatArray, p: float) -> int:
    """Returns how many of the sorted scores have at least p times the best one's probability."""
    return max(1, int(np.count_nonzero(scores >= scores[0] + np.log(np.float32(p)))))


NOT_FINITE = (
    "the model computes logits that are not finite numbers; its file may be damaged,"
    " so download or convert it again"
)


class SampledToken(Struct, frozen=True):
    """A chosen token; if asked for, its log probability and those of the best tokens, sorted.

    Logarithms are natural, of the model's softmax before any filter, penalty or temperature.
    """

    id: int
    logprob: float | None = None
    alternatives: tuple[tuple[int, float], ...] = ()


class Sampler:
    """Chooses an answer's tokens, with random state and `history`, the tokens before it."""

    def __init__(
        self,
        request: GenerationRequest,
        history: Iterable[int] = (),
        constraint: Constraint | None = None,
    ) -> None:
        self._params = request.sampling
        self._random = Random(self._params.seed)
        last_n = self._params.penalty_last_n
        self._recent: deque[int] = deque(history, maxlen=None if last_n < 0 else last_n)
        self._constraint, self._num_logprobs = constraint, request.num_logprobs
        self._bias = dict(request.logit_bias)

    @property
    def takes_largest(self) -> bool:
        """True if every choice is the largest logit, so that `accept` may replace `choose`."""
        is_free = self._constraint is None and not self._bias and self._num_logprobs is None
        return is_free and self._params.temperature <= 0 and not self._has_penalties

    def accept(self, token: int) -> SampledToken:
        """Records `token`, which the caller found to have the largest logit, as the chosen one."""
        self._recent.append(token)
        return SampledToken(token)

    def choose(self, logits: FloatArray) -> SampledToken:
        """Chooses the next token by logits (vocabulary,), which are left as they are.

        Raises ModelFileError if the largest logit is not finite, as with damaged weights,
        UsageError if the constraint allows no token, and the errors of the constraint.
        """
        token = self._sample(self._masked(self._biased(logits)))
        if self._constraint is not None:
            self._constraint.accept(token)
        if self._num_logprobs is None:
            return SampledToken(token)
        return with_logprobs(token, logits, self._num_logprobs)

    def _sample(self, logits: FloatArray) -> int:
        if not np.isfinite(logits.max()):
            raise ModelFileError(NOT_FINITE)
        p = self._params
        if self._recent and self._has_penalties:
            logits = self._penalise(logits)
        greedy = p.temperature <= 0
        token = int(np.argmax(logits)) if greedy else self._draw(*candidates(logits, p))
        self._recent.append(token)
        return token

    def _biased(self, logits: FloatArray) -> FloatArray:
        if not self._bias:
            return logits
        biased = logits.copy()
        biased[list(self._bias)] += np.fromiter(self._bias.values(), np.float32)
        return biased

    def _masked(self, logits: FloatArray) -> FloatArray:
        mask = None if self._constraint is None else self._constraint.allowed()
        if mask is None:
            return logits
        allowed = _bits(mask, len(logits))
        if not allowed.any():
            raise UsageError("the grammar allows none of the model's tokens here; loosen it")
        return np.where(allowed, logits, np.float32(-np.inf))

    def _draw(self, ids: IdArray, scores: FloatArray) -> int:
        weights = softmax(scores / self._params.temperature)
        cumulative = np.cumsum(weights, dtype=np.float64)
        at = np.searchsorted(cumulative, self._random.random() * cumulative[-1], side="right")
        return int(ids[min(int(at), len(ids) - 1)])

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


def _bits(mask: TokenMask, count: int) -> npt.NDArray[np.bool_]:
    """Unpacks the first `count` bits, least significant first; bits beyond the mask are unset."""
    bits = np.unpackbits(mask.astype("<u4", copy=False).view(np.uint8), bitorder="little")
    allowed = np.zeros(count, np.bool_)
    known = min(count, len(bits))
    allowed[:known] = bits[:known]
    return allowed


def with_logprobs(token: int, logits: FloatArray, count: int) -> SampledToken:
    """Returns the token with log probabilities, its own and the `count` highest, unfiltered."""
    exact = logits.astype(np.float64)
    peak = exact.max()
    total = peak + np.log(np.exp(exact - peak).sum())
    best = top_k(logits, min(count, len(logits))) if count > 0 else ()
    alternatives = tuple((int(i), float(exact[i] - total)) for i in best)
    return SampledToken(token, float(exact[token] - total), alternatives)
