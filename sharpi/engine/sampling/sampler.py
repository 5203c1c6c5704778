"""Chooses an answer's tokens: bias and constraint, penalties, filters, then temperature.

The order of the filters is llama.cpp's default.
"""

from collections import Counter, deque
from collections.abc import Iterable
from random import Random  # NumPy's own takes 10 ms to import, which the first token would wait for

import numpy as np
import numpy.typing as npt

from sharpi.config import GenerationRequest
from sharpi.constraints.constraint import Constraint, TokenMask
from sharpi.engine.sampling.candidates import FloatArray, IdArray, candidates, softmax, top_k
from sharpi.engine.sampling.text_delta import SampledToken
from sharpi.errors import ModelFileError, UsageError

NOT_FINITE = (
    "the model computes logits that are not finite numbers; its file may be damaged,"
    " so download or convert it again"
)


class Sampler:
    """Chooses tokens for one answer, with its own random state and memory of recent tokens.

    `history` are the tokens before the answer.
    """

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
    """Returns the token with its log probability and those of the `count` most likely tokens.

    They are by the model's softmax, before any filter.
    """
    exact = logits.astype(np.float64)
    peak = exact.max()
    total = peak + np.log(np.exp(exact - peak).sum())
    best = top_k(logits, min(count, len(logits))) if count > 0 else ()
    alternatives = tuple((int(i), float(exact[i] - total)) for i in best)
    return SampledToken(token, float(exact[token] - total), alternatives)
