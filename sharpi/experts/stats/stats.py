"""The statistics of a run's experts: hits, loads and their cost, per layer and in total.

Numbers only: stats_collect.py reads them from a running store, stats_json.py and stats_text.py
write them.
"""

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

NUM_TOP_EXPERTS = 5


class HitCount(NamedTuple):
    """Lookups of experts, and how many of them were resident."""

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


class LayerStats(Struct, frozen=True):
    """One layer with experts; counts are in experts."""

    layer: int
    num_slots: int
    accesses: int
    hits: int  # resident when needed
    late: int  # in flight when needed
    loads: int  # read while a thread waited
    bytes_read: int
    stall_seconds: float
    uses: tuple[int, ...]  # (experts,) lookups of each expert
    pinned: tuple[int, ...] = ()  # ids that are never evicted

    @property
    def hit_count(self) -> HitCount:
        return HitCount(self.accesses, self.hits)

    def top(self, number: int = NUM_TOP_EXPERTS) -> tuple[TopExpert, ...]:
        """Returns the most used experts, lower ids first among equals, without unused ones."""
        total = sum(self.uses)
        order = sorted(range(len(self.uses)), key=lambda expert: (-self.uses[expert], expert))
        used = (expert for expert in order[:number] if self.uses[expert])
        return tuple(TopExpert(expert, self.uses[expert] / total) for expert in used)


class PredictionStats(Struct, frozen=True):
    """A predictor's results; counts are in experts."""

    predictor: str
    is_on: bool
    guessed: int  # predicted
    used: int  # in steps with predictions
    right: int  # predicted and used
    prefetched: int
    prefetch_used: int  # of the prefetched experts
    late: int  # used before they had arrived
    dropped: int  # found no room in the queue
    failed: int  # could not be read
    bytes_moved: int
    wasted_bytes: int  # moved but never used

    @property
    def recall(self) -> float | None:
        """The part of the used experts that was predicted."""
        return self.right / self.used if self.used else None

    @property
    def precision(self) -> float | None:
        """The part of the predictions that was used."""
        return self.right / self.guessed if self.guessed else None


class ExpertStats(Struct, frozen=True):
    """The statistics of a whole run."""

    model: str
    policy: str
    num_experts: int
    experts_per_token: int
    num_tokens: int
    layers: tuple[LayerStats, ...]  # those with experts
    before_pin: HitCount | None = None  # lookups before the warm pin; None if there was none
    after_pin: HitCount | None = None  # lookups since the warm pin
    prediction: PredictionStats | None = None
    notes: tuple[str, ...] = ()  # the run's own decisions, in words

    @property
    def hit_count(self) -> HitCount:
        """The lookups of all layers together."""
        return HitCount(self._sum(lambda x: x.accesses), self._sum(lambda x: x.hits))

    @property
    def loads(self) -> int:
        return self._sum(lambda layer: layer.loads)

    @property
    def late(self) -> int:
        return self._sum(lambda layer: layer.late)

    @property
    def bytes_read(self) -> int:
        return self._sum(lambda layer: layer.bytes_read)

    @property
    def stall_seconds(self) -> float:
        """The time in which at least one thread waited for an expert."""
        return sum(layer.stall_seconds for layer in self.layers)

    def per_token(self, count: float) -> float | None:
        """Divides a total by the number of tokens; returns None before the first one."""
        return count / self.num_tokens if self.num_tokens else None

    def _sum(self, figure: Callable[[LayerStats], int]) -> int:
        return sum(map(figure, self.layers))
