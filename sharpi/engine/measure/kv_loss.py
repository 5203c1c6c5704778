"""KvLoss: how far the next-token probabilities of one engine are from those of another."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

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
        """The perplexity of the reference engine over the same tokens."""
        return float(np.exp(self.reference_nll_sum / self.num_tokens))

    def plus(self, logits: Logits, reference: Logits, targets: npt.NDArray[np.int32]) -> "KvLoss":
        """Returns the sums with more tokens added.

        `logits` and `reference` (tokens, vocabulary) are the logits of both engines, and `targets`
        (tokens,) the ids of the tokens that follow.
        """
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
