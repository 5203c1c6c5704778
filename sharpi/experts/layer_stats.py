"""LayerStats: what steps found of one layer's experts, with its hits, loads and their cost."""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct, structs

NUM_TOP_EXPERTS = 5


class HitCount(NamedTuple):
    """The number of lookups of experts, and how many of these experts were resident."""

    accesses: int
    hits: int

    @property
    def rate(self) -> float | None:
        """The hit rate, 0 to 1; None without accesses."""
        return self.hits / self.accesses if self.accesses else None


def sum_of_hits(counts: Iterable[HitCount | None]) -> HitCount | None:
    """Returns the sum of the counts that are not None; None if there are none."""
    known = [count for count in counts if count is not None]
    return HitCount(*map(sum, zip(*known, strict=True))) if known else None


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

    def with_lookups(
        self, prompt: PhaseCounts, decode: PhaseCounts, uses: Iterable[int]
    ) -> "LayerStats":
        """Returns the sums with further lookups, and with their `uses` (experts,)."""
        return structs.replace(
            self,
            prompt=sum_of((self.prompt, prompt)),
            decode=sum_of((self.decode, decode)),
            uses=tuple(map(int.__add__, self.uses, uses)),
        )

    def plus(self, earlier: "LayerStats") -> "LayerStats":
        """Returns the sums with the counts of earlier slots for the same layer."""
        fills, read = self.fills + earlier.fills, self.bytes_read + earlier.bytes_read
        total = self.with_lookups(earlier.prompt, earlier.decode, earlier.uses)
        return structs.replace(total, fills=fills, bytes_read=read)

    def top(self, number: int = NUM_TOP_EXPERTS) -> tuple[TopExpert, ...]:
        """Returns at most `number` used experts, most used first; ties by lower id."""
        total = sum(self.uses)
        order = sorted(range(len(self.uses)), key=lambda expert: (-self.uses[expert], expert))
        used = (expert for expert in order[:number] if self.uses[expert])
        return tuple(TopExpert(expert, self.uses[expert] / total) for expert in used)
