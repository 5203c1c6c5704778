"""The statistics of a run's experts: hits, loads and their cost, per layer and in total.

stats_collect.py collects them from a running store, stats_merge.py sums those of several, and
stats_file.py checks, writes and reads them.
"""

import math
from collections.abc import Sequence
from typing import Optional

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from sharpi.experts.layer_stats import HitCount, LayerStats, PhaseCounts, sum_of
from sharpi.ops.routed_capacity import LEAST_TOKENS, experts_at_once


class RemoteStats(Struct, frozen=True):
    """The counts of requests to other machines; LayerStats counts the experts in them."""

    questions: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    stall_seconds: float = 0.0  # seconds that steps waited for replies
    round_trip_seconds: float = 0.0  # seconds of all requests, until their replies arrived


class PredictionStats(Struct, frozen=True):
    """A predictor's results in a run; most counts are numbers of experts."""

    predictor: str
    is_on: bool  # False if it was too slow in the timing trial, or too seldom right
    steps: int  # steps that decoded, and might have predicted
    predicted_steps: int  # steps that did predict
    guessed: int  # experts predicted
    used: int  # experts used in steps with predictions
    right: int  # experts predicted and used
    dropped: int  # predicted experts that were not read because the queue was full
    failed: int  # predicted experts that could not be read
    bytes_moved: int

    @property
    def recall(self) -> float | None:
        """The share of the used experts that was predicted, 0 to 1; None without uses."""
        return self.right / self.used if self.used else None

    @property
    def precision(self) -> float | None:
        """The share of the predicted experts that was used, 0 to 1; None without predictions."""
        return self.right / self.guessed if self.guessed else None


class SkewStats(Struct, frozen=True):
    """The extreme values, over all batches of prompts, of how unevenly experts were used."""

    batches: int
    # The least --moe-capacity-factor with room for full batches, routed as these were.
    capacity_factor: float
    # The most of a layer's routed tokens that one expert got, as a multiple of the even share.
    busiest_share: float


class ExpertStats(Struct, frozen=True):
    """The statistics of a run's experts, for the fastest tier that has expert slots."""

    model: str
    tier: str  # the tiers with the slots: VRAM, RAM or both
    policy: str
    num_experts: int
    experts_per_token: int
    num_prompt_tokens: int
    num_tokens: int  # decoded tokens
    layers: tuple[LayerStats, ...]  # the layers with experts
    # Tokens decoded in steps that also computed part of a prompt; their experts count for it.
    num_beside: int = 0
    before_pin: HitCount | None = None  # before the most used experts were pinned; None if never
    after_pin: HitCount | None = None  # after they were pinned; None if never
    prediction: PredictionStats | None = None
    skew: SkewStats | None = None  # None without prompts
    failed_reads: int = 0  # experts that could not be read
    asked: RemoteStats | None = None  # None if no other machine computes experts
    notes: tuple[str, ...] = ()  # sentences on what the run decided by itself
    # The slots in RAM of a model that exceeds VRAM and RAM, used for experts that the GPU misses.
    below: Optional["ExpertStats"] = None

    @property
    def prompt(self) -> PhaseCounts:
        """The counts for prompts, summed over all layers."""
        return sum_of((PhaseCounts(), *(layer.prompt for layer in self.layers)))

    @property
    def decode(self) -> PhaseCounts:
        """The counts for decoded tokens, summed over all layers."""
        return sum_of((PhaseCounts(), *(layer.decode for layer in self.layers)))

    @property
    def total(self) -> PhaseCounts:
        """The counts for prompts and decoded tokens, summed over all layers."""
        return sum_of((self.prompt, self.decode))

    @property
    def bytes_read(self) -> int:
        return sum(layer.bytes_read for layer in self.layers)

    @property
    def fills(self) -> int:
        return sum(layer.fills for layer in self.layers)

    def per_token(self, count: float) -> float | None:
        """Returns `count` per token that was decoded without part of a prompt; None without any."""
        alone = self.num_tokens - self.num_beside
        return count / alone if alone > 0 else None


# A factor of 1 is always enough.
_FACTORS = tuple(percent / 100 for percent in range(1, 101))


class Skew:
    """Collects the routes of prompts, in batches of at most `batch_size` tokens."""

    def __init__(self, num_experts: int, batch_size: int) -> None:
        self._num_experts, self._batch_size = num_experts, batch_size
        self._sufficient = list(_FACTORS)  # factors that sufficed for all batches so far
        self._num_batches = 0
        self._busiest = 0.0

    def add(self, routes: Sequence[NDArray[np.integer]]) -> None:
        """Adds a prompt's routes, (tokens, experts per token) or with fewer rows for each layer."""
        num_tokens = max(map(len, routes), default=0)
        for first in range(0, num_tokens, self._batch_size):
            self._num_batches += 1
            for ids in routes:
                self._add(ids[first : first + self._batch_size])

    def _add(self, ids: NDArray[np.integer]) -> None:
        """Adds a layer's routes in one batch; ignores batches that fit with any capacity factor."""
        if len(ids) < LEAST_TOKENS:
            return
        counts = np.bincount(ids.ravel(), minlength=self._num_experts)
        self._busiest = max(self._busiest, float(counts.max()) * self._num_experts / ids.size)
        sums = np.concatenate([[0], np.cumsum(counts)])
        self._sufficient = [
            factor for factor in self._sufficient if self._suffices(factor, sums, *ids.shape)
        ]

    def _suffices(self, factor: float, sums: NDArray[np.integer], tokens: int, used: int) -> bool:
        """Returns True if a full batch routed like this one fits; `sums` are cumulative tokens."""
        width = experts_at_once(factor, self._num_experts)
        most = int((sums[width:] - sums[:-width]).max())
        return most <= used * math.ceil(factor * tokens)

    @property
    def stats(self) -> SkewStats | None:
        """The result so far; None until a batch of more than a few tokens was added."""
        if not self._busiest:
            return None
        return SkewStats(self._num_batches, self._sufficient[0], self._busiest)
