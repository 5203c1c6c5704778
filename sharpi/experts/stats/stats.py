"""The statistics of a run's experts: hits, loads and their cost, per layer and in total.

These are numbers only: stats_collect.py reads them from a running store, stats_checks.py checks
that they agree, stats_json.py and stats_text.py write them.
"""

from typing import Optional

from msgspec import Struct

from sharpi.experts.stats.counts import HitCount, LayerStats, PhaseCounts, TotalCounts, sum_of
from sharpi.experts.stats.remote_stats import RemoteStats


class PredictionStats(Struct, frozen=True):
    """A predictor's results; counts are in experts."""

    predictor: str
    is_on: bool  # False if the timing trial, or a poor record of its predictions, stopped it
    steps: int  # steps that decoded, and might have predicted
    predicted_steps: int  # steps that did predict
    guessed: int  # experts predicted
    used: int  # experts used in steps with predictions
    right: int  # experts predicted and used
    dropped: int  # predicted experts for which the queue had no room
    failed: int  # predicted experts that could not be read
    bytes_moved: int

    @property
    def recall(self) -> float | None:
        """The part of the used experts that was predicted."""
        return self.right / self.used if self.used else None

    @property
    def precision(self) -> float | None:
        """The part of the predictions that was used."""
        return self.right / self.guessed if self.guessed else None


class SkewStats(Struct, frozen=True):
    """How unevenly prompts used the experts: the extremes of all their batches."""

    batches: int
    # The least --moe-capacity-factor with which every batch would have fit.
    capacity_factor: float
    # The most of a layer's routed tokens that one expert got, as a multiple of the even share.
    busiest_share: float


class ExpertStats(TotalCounts, Struct, frozen=True):
    """The statistics of a run, for the fastest tier that has slots."""

    model: str
    tier: str  # the tier with the slots: VRAM or RAM
    policy: str
    num_experts: int
    experts_per_token: int
    num_prompt_tokens: int
    num_tokens: int  # decoded tokens
    layers: tuple[LayerStats, ...]  # the layers with experts
    # Tokens decoded in steps that also computed part of a prompt; their experts count with it.
    num_beside: int = 0
    before_pin: HitCount | None = None  # lookups before the warm pin; None if there was none
    after_pin: HitCount | None = None  # lookups since the warm pin
    prediction: PredictionStats | None = None
    skew: SkewStats | None = None  # None without prompts
    failed_reads: int = 0  # experts that could not be read
    asked: RemoteStats | None = None  # None if no other machine lends experts
    notes: tuple[str, ...] = ()  # sentences on what the run decided by itself
    # The slots in RAM of a model that exceeds VRAM and RAM; they serve the GPU's misses.
    below: Optional["ExpertStats"] = None

    @property
    def prompt(self) -> PhaseCounts:
        """The counts of prompts, of all layers."""
        return sum_of((PhaseCounts(), *(layer.prompt for layer in self.layers)))

    @property
    def decode(self) -> PhaseCounts:
        """The counts of decoded tokens, of all layers."""
        return sum_of((PhaseCounts(), *(layer.decode for layer in self.layers)))

    @property
    def total(self) -> PhaseCounts:
        """The counts of both phases and of all layers."""
        return sum_of((self.prompt, self.decode))

    @property
    def bytes_read(self) -> int:
        return sum(layer.bytes_read for layer in self.layers)

    @property
    def fills(self) -> int:
        return sum(layer.fills for layer in self.layers)

    def per_token(self, count: float) -> float | None:
        """Divides a count of the decode phase by its tokens; None before the first token."""
        alone = self.num_tokens - self.num_beside
        return count / alone if alone > 0 else None
