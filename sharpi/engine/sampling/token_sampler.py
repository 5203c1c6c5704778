"""Chooses an answer's tokens: bias and constraint before the sampler, logprobs beside it."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from sharpi.config import GenerationRequest
from sharpi.constraints.constraint import Constraint, TokenMask
from sharpi.engine.sampling.sampler import Sampler, top_k
from sharpi.engine.sampling.text_delta import SampledToken
from sharpi.errors import UsageError

FloatArray = npt.NDArray[np.float32]


class TokenSampler:
    """Chooses the tokens of one answer; `history` are the tokens before it."""

    def __init__(
        self,
        request: GenerationRequest,
        history: Iterable[int] = (),
        constraint: Constraint | None = None,
    ) -> None:
        self._sampler = Sampler(request.sampling, history)
        self._constraint, self._num_logprobs = constraint, request.num_logprobs
        self._bias = dict(request.logit_bias)

    @property
    def takes_largest(self) -> bool:
        """True if every choice is the largest logit, so that `accept` may replace `choose`."""
        is_free = self._constraint is None and not self._bias and self._num_logprobs is None
        return is_free and self._sampler.takes_largest

    def accept(self, token: int) -> SampledToken:
        """Returns the token that the caller found to have the largest logit as the chosen one."""
        self._sampler.accept(token)
        return SampledToken(token)

    def choose(self, logits: FloatArray) -> SampledToken:
        """Chooses the next token by logits (vocabulary,), which are left as they are.

        Raises ModelFileError if the largest logit is not finite, UsageError if the constraint
        allows no token, and the errors of the constraint.
        """
        token = self._sampler.sample(self._masked(self._biased(logits)))
        if self._constraint is not None:
            self._constraint.accept(token)
        if self._num_logprobs is None:
            return SampledToken(token)
        return with_logprobs(token, logits, self._num_logprobs)

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


def _bits(mask: TokenMask, count: int) -> npt.NDArray[np.bool_]:
    """Unpacks the first `count` bits, least significant first; bits beyond the mask are unset."""
    bits = np.unpackbits(mask.astype("<u4", copy=False).view(np.uint8), bitorder="little")
    allowed = np.zeros(count, np.bool_)
    known = min(count, len(bits))
    allowed[:known] = bits[:known]
    return allowed


def with_logprobs(token: int, logits: FloatArray, count: int) -> SampledToken:
    """Adds the token's log probability and the best `count` others, by the model's softmax."""
    exact = logits.astype(np.float64)
    peak = exact.max()
    total = peak + np.log(np.exp(exact - peak).sum())
    best = top_k(logits, min(count, len(logits))) if count > 0 else ()
    alternatives = tuple((int(i), float(exact[i] - total)) for i in best)
    return SampledToken(token, float(exact[token] - total), alternatives)
