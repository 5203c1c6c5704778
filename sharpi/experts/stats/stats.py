"""The statistics of a run's experts: hits, loads and their cost, per layer and in total.

stats_collect.py collects them from a running store, stats_merge.py sums those of several, and
stats_file.py checks, writes and reads them.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Optional

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from sharpi.ops.routed_capacity import LEAST_TOKENS, experts_at_once, rows_of_batch

NUM_TOP_EXPERTS = 5


class HitCount(NamedTuple):
    """The number of lookups of experts, and how many of these experts were resident."""

    accesses: int
    hits: int

    @property
    def rate(self) -> float | None:
        """The hit rate, 0 to 1; None without accesses."""
        return self.hits / self.accesses if self.accesses else None


class TopExpert(NamedTuple):
    """An expert of a layer, and its share of the layer's uses, 0 to 1."""

    expert: int
    share: float


class PhaseCounts(Struct, frozen=True):
    """The counts of expert accesses by prompts, or by decoded tokens.

    Each access counts in exactly one of hits, late, loads, computed, remote and mapped.
    """

    accesses: int = 0  # distinct experts of each step
    hits: int = 0  # resident when needed
    late: int = 0  # in flight when needed
    loads: int = 0  # read or copied only when they were needed
    computed: int = 0  # computed by the CPU, because they were not resident on the GPU
    remote: int = 0  # computed by another machine, which has them in memory
    bytes_loaded: int = 0  # bytes of the loads
    stall_seconds: float = 0.0  # seconds that steps waited for experts
    mapped: int = 0  # used in the mapped file, while a tier had no slots
    prefetched: int = 0  # experts requested before they were needed
    prefetch_used: int = 0  # prefetched experts that were used
    wasted_bytes: int = 0  # bytes prefetched and not used

    @property
    def hit_count(self) -> HitCount:
        return HitCount(self.accesses, self.hits)

    def since(self, before: HitCount) -> HitCount:
        """Returns the lookups and hits after an earlier moment."""
        return HitCount(self.accesses - before.accesses, self.hits - before.hits)


def sum_of(counts: Iterable[PhaseCounts]) -> PhaseCounts:
    """Returns the sum of the counts, field by field."""
    columns = zip(*map(structs.astuple, counts), strict=True)
    return PhaseCounts(*(sum(column) for column in columns))


class LayerStats(Struct, frozen=True):
    """The statistics of one layer with routed experts; counts are numbers of experts."""

    layer: int
    num_slots: int
    expert_bytes: int  # bytes of one expert's weights
    prompt: PhaseCounts  # in steps that compute part of a prompt
    decode: PhaseCounts  # in steps that decode one token of each sequence
    fills: int  # experts loaded before they were needed: at the start, or by pinning the most used
    bytes_read: int  # all bytes read, with prefetches and fills
    uses: tuple[int, ...]  # (experts,) how often tokens used each expert
    pinned: tuple[int, ...] = ()  # ids that are never evicted

    @property
    def total(self) -> PhaseCounts:
        """The sum of the counts for prompts and for decoded tokens."""
        return sum_of((self.prompt, self.decode))

    def plus(self, earlier: "LayerStats") -> "LayerStats":
        """Returns the sums with the counts of earlier slots for the same layer."""
        return structs.replace(
            self,
            prompt=sum_of((self.prompt, earlier.prompt)),
            decode=sum_of((self.decode, earlier.decode)),
            fills=self.fills + earlier.fills,
            bytes_read=self.bytes_read + earlier.bytes_read,
            uses=tuple(map(int.__add__, self.uses, earlier.uses)),
        )

    def top(self, number: int = NUM_TOP_EXPERTS) -> tuple[TopExpert, ...]:
        """Returns at most `number` most used experts, most used first; ties by lower id.

        Unused experts are left out.
        """
        total = sum(self.uses)
        order = sorted(range(len(self.uses)), key=lambda expert: (-self.uses[expert], expert))
        used = (expert for expert in order[:number] if self.uses[expert])
        return tuple(TopExpert(expert, self.uses[expert] / total) for expert in used)


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
    # The least --moe-capacity-factor with which every batch would have fit.
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
        """Returns `count`, one for decoded tokens, per such token; None before the first token.

        Tokens that were decoded together with a part of a prompt are left out.
        """
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
        """Adds a prompt's routes: for each layer an array (tokens, experts per token).

        A layer that is computed only for some tokens has fewer rows.
        """
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
            factor for factor in self._sufficient if self._suffices(factor, sums, ids.shape[1])
        ]

    def _suffices(self, factor: float, sums: NDArray[np.integer], used: int) -> bool:
        """Returns True if each group of adjacent experts fits; `sums` are cumulative tokens."""
        width = experts_at_once(factor, self._num_experts)
        most = int((sums[width:] - sums[:-width]).max())
        return most <= rows_of_batch(factor, self._batch_size, used)

    @property
    def stats(self) -> SkewStats | None:
        """The result so far; None until a batch of more than a few tokens was added."""
        if not self._busiest:
            return None
        return SkewStats(self._num_batches, self._sufficient[0], self._busiest)
