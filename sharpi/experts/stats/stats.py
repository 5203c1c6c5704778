"""The statistics of a run's experts: hits, loads and their cost, per layer and in total.

stats_collect.py collects them from a running store, stats_checks.py checks their consistency, and
stats_json.py and stats_text.py write them.
"""

from typing import Optional

from msgspec import Struct

from sharpi.experts.stats.counts import HitCount, LayerStats, PhaseCounts, TotalCounts, sum_of
from sharpi.experts.stats.remote_stats import RemoteStats


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
    # The least --moe-capacity-factor with which every batch would have fit.
    capacity_factor: float
    # The most of a layer's routed tokens that one expert got, as a multiple of the even share.
    busiest_share: float


class ExpertStats(TotalCounts, Struct, frozen=True):
    """The statistics of a run's experts, for the fastest tier that has expert slots."""

    model: str
    tier: str  # the tier with the slots: VRAM or RAM
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
        """Returns `count`, one for decoded tokens, per such token; None before the first token.

        Tokens that were decoded together with a part of a prompt are left out.
        """
        alone = self.num_tokens - self.num_beside
        return count / alone if alone > 0 else None
