"""TierPlan: the tier of every part of a model, its size there, and the reason."""

from enum import StrEnum
from typing import Any

from msgspec import Struct, to_builtins

from sharpi.errors import UsageError
from sharpi.tiers.expert_memory import NO_STAGING, NO_STASH, GpuStaging, KvGrowth, StashPlan
from sharpi.units import format_bytes


class GpuPlace(Struct, frozen=True):
    """The layers, memory and buffers of one GPU in a plan."""

    gpu: int  # index among the request's GPUs
    first: int  # its first layer
    end: int  # the layer after its last one
    budget: int  # budget in bytes
    num_bytes: int  # bytes taken of the budget
    staging: GpuStaging = NO_STAGING  # buffers for experts without a slot, if there are any
    stash: StashPlan = NO_STASH  # memory for prompts that are computed layer by layer
    growth: KvGrowth | None = None  # None unless the KV cache begins small
    embeds: bool = False  # holds the embedding in addition to all layers with all their experts

    @property
    def layers(self) -> range:
        """The indices of the layers on this GPU."""
        return range(self.first, self.end)


class Tier(StrEnum):
    """The kinds of memory, fastest first."""

    VRAM = "vram"
    RAM = "ram"
    DISK = "disk"


class Purpose(StrEnum):
    """The purposes for which a plan uses memory."""

    DENSE_WEIGHTS = "trunk"  # the values stand in `sharpi plan --json`, which stays the same
    KV = "kv"
    SCRATCH = "scratch"
    EXPERTS = "experts"
    SLOTS = "slots"
    STAGING = "staging"
    LEARNED = "learned"
    STASH = "stash"
    RESERVE = "reserve"


class SlotStatus(StrEnum):
    """How a layer's slots compare with the recommended number; a plan has the worst."""

    EMPTY = "empty"
    OK = "ok"
    BELOW_RECOMMENDED = "below-recommended"
    BUDGET_EXHAUSTED = "budget-exhausted"
    UNKNOWN_EXPERT_SIZE = "unknown-expert-size"


class PlanLine(Struct, frozen=True):
    """The bytes of one tier that are used for one purpose; on disk, bytes that stay in the file."""

    tier: Tier
    purpose: Purpose
    num_bytes: int
    reason: str


_OLDER_NAMES = {"dense_weights": "trunk", "dense_weights_bytes": "trunk_bytes"}  # in that JSON


class LayerPlan(Struct, frozen=True, rename=_OLDER_NAMES):
    """The tiers and sizes of one layer; experts that are mapped or in VRAM need no slot."""

    index: int
    dense_weights: Tier  # the tier that computes the layer
    dense_weights_bytes: int
    kv_bytes: int
    experts: Tier | None  # the tier that stores its routed experts
    num_experts: int
    expert_bytes: int | None  # bytes of one expert; None if unknown
    slot_bytes: int  # bytes of one slot
    vram_slots: int  # the number of expert slots in VRAM
    ram_slots: int  # the number of expert slots in RAM
    recommended_slots: int
    status: SlotStatus
    reason: str

    @property
    def num_resident(self) -> int:
        """The number of experts that are in RAM or VRAM once the slots are full."""
        if self.experts is not Tier.DISK:
            return self.num_experts
        return min(self.num_experts, self.vram_slots + self.ram_slots)

    @property
    def is_resident(self) -> bool:
        """True if each expert stays in the memory of the processor that computes the layer."""
        if self.dense_weights is Tier.VRAM:
            return self.vram_slots == self.num_experts
        return self.experts is not Tier.DISK or self.ram_slots == self.num_experts

    def lacks_ram_slots(self, num_used: int) -> bool:
        """Returns True if RAM has fewer slots than a token's `num_used` experts may need."""
        if self.experts is not Tier.DISK:
            return False
        return self.ram_slots < min(num_used, self.num_experts - self.vram_slots)


class Speed(Struct, frozen=True):
    """The estimated decode speed, as a range, and the expected hit rate."""

    tokens_per_second: float  # the upper bound
    least_tokens_per_second: float  # the lower bound, unless other programs use the machine
    bound: str  # the source that takes most of a token's time
    bytes_per_token: dict[str, int]
    hit_rate: float  # expected share of a token's experts that the fastest tier has
    is_measured: bool  # all rates that it follows from were measured
    is_hit_rate_known: bool  # it follows from earlier runs, or all experts are resident
    assumptions: tuple[str, ...]  # sentences about rates that were not measured


class TierPlan(Struct, frozen=True, rename={"uses_small_maps": "learns_little"}):
    """The complete plan of a model's memory; budgets and sizes are in bytes."""

    context_size: int
    ram_budget: int
    vram_budget: int
    status: SlotStatus
    ratio: float  # the least of all layers' slots / recommended slots, at most 1
    num_staging: int  # buffers for reads, each for the largest expert; 0 without slots in RAM
    lines: tuple[PlanLine, ...]
    layers: tuple[LayerPlan, ...]
    speed: Speed
    notes: tuple[str, ...]
    gpus: tuple[GpuPlace, ...] = ()  # the GPUs that have layers, in order
    uses_small_maps: bool = False  # RAM is too short for the maps of the usual policy of its slots

    def bytes_in(self, tier: Tier, purpose: Purpose | None = None) -> int:
        """Returns the bytes used in one tier, for one purpose or (None) for all."""
        return sum(
            line.num_bytes
            for line in self.lines
            if line.tier is tier and purpose in (None, line.purpose)
        )

    @property
    def shortfall(self) -> int:
        """The bytes by which the plan exceeds the RAM budget; 0 if it fits."""
        return max(0, self.bytes_in(Tier.RAM) - self.ram_budget)

    @property
    def fits(self) -> bool:
        """True if the model can run within the budgets."""
        return self.shortfall == 0

    def require_fit(self) -> None:
        """Raises UsageError, which states the missing bytes, if the plan does not fit."""
        if not self.fits:
            needed, budget = map(format_bytes, (self.bytes_in(Tier.RAM), self.ram_budget))
            raise UsageError(
                f"the model needs at least {needed} of RAM, {format_bytes(self.shortfall)} more"
                f" than the budget of {budget}; raise --ram, or lower -c or -b"
            )

    @property
    def is_mapped(self) -> bool:
        """True if all experts are in VRAM or mapped memory, so that none is read from disk."""
        return all(layer.experts is not Tier.DISK for layer in self.layers)

    @property
    def layers_on_disk(self) -> frozenset[int]:
        """The indices of this machine's layers whose experts are read from disk when missed."""
        return frozenset(each.index for each in self.layers if each.experts is Tier.DISK)

    @property
    def private_bytes(self) -> int:
        """The bytes of RAM beside the mapped file, which the system cannot drop."""
        of_file = (Purpose.DENSE_WEIGHTS, Purpose.EXPERTS) if self.is_mapped else ()
        return self.bytes_in(Tier.RAM) - sum(self.bytes_in(Tier.RAM, each) for each in of_file)

    @property
    def slotted_layers(self) -> tuple[int, ...]:
        """The indices of layers on the GPU of which some experts are not in VRAM."""
        return tuple(
            layer.index
            for layer in self.layers
            if layer.dense_weights is Tier.VRAM and layer.vram_slots < layer.num_experts
        )

    @property
    def first_gpu_layer(self) -> int:
        """The index of the first layer on the GPU; the number of layers if there is none."""
        on_gpu = (layer.index for layer in self.layers if layer.dense_weights is Tier.VRAM)
        return next(on_gpu, len(self.layers))

    @property
    def ram_slots(self) -> tuple[int, ...]:
        """The number of expert slots in RAM, by layer."""
        return tuple(layer.ram_slots for layer in self.layers)

    @property
    def vram_slots(self) -> tuple[int, ...]:
        """The number of expert slots in VRAM, by layer."""
        return tuple(layer.vram_slots for layer in self.layers)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain types for JSON: all fields, derived values, and the bytes of each tier."""
        first = self.gpus[0] if self.gpus else GpuPlace(0, 0, 0, 0, 0)
        derived = {
            "fits": self.fits,
            "shortfall": self.shortfall,
            "is_mapped": self.is_mapped,
            "card_staging": to_builtins(first.staging),
            "stash": to_builtins(first.stash),
            "kv_growth": to_builtins(first.growth),
            "bytes_by_tier": {tier.value: self.bytes_in(tier) for tier in Tier},
        }
        plain: dict[str, Any] = to_builtins(self) | derived
        return plain


class TierBudget:
    """The budget of one tier in bytes; `left` is negative if allocations exceed it."""

    def __init__(self, tier: Tier, budget: int) -> None:
        self.tier, self.budget = tier, budget
        self.left = budget
        self.lines: list[PlanLine] = []

    @property
    def taken(self) -> int:
        """The bytes allocated so far."""
        return self.budget - self.left

    def take(self, purpose: Purpose, num_bytes: int, reason: str) -> None:
        """Subtracts bytes from the budget, and adds a line to `lines` unless they are 0."""
        if num_bytes:
            self.left -= num_bytes
            self.lines.append(PlanLine(self.tier, purpose, num_bytes, reason))
