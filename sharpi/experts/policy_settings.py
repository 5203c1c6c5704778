"""The settings and results of slot policies, for the native code and the Python reference."""

from enum import IntEnum
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from sharpi.errors import UsageError
from sharpi.ops.slot_rules import whole

# The predictors from routes alone, numbered as PredictorKind in predictor.h.
PREDICTORS = ("last-token", "last-layer", "both", "frequency")
ROUTER = "router"  # runs the next layer's router on the current layer's input
PREDICTOR_NAMES = (*PREDICTORS, ROUTER)


class PolicyKind(IntEnum):
    """The kinds of policies, with their numbers in kernels/slot_rules.h."""

    SLRU = 0
    LRU = 5
    LFRU = 6
    STATIC = 8
    LEARNED_KEEP = 4
    LEARNED_PREFETCH = 10

    @property
    def label(self) -> str:
        """The kind as users write it, such as `learned-keep`."""
        return self.name.lower().replace("_", "-")

    @property
    def is_learned(self) -> bool:
        """True if the policy learns which experts come next, and places missed ones at once."""
        return self in (PolicyKind.LEARNED_KEEP, PolicyKind.LEARNED_PREFETCH)

    @property
    def prefetches(self) -> bool:
        """True if the policy loads experts that were not missed, as many as a budget allows."""
        return self is PolicyKind.LEARNED_PREFETCH


POLICIES = {kind.label: kind for kind in PolicyKind}


def policy_kind(name: str) -> PolicyKind:
    """Returns the kind with this name, such as `learned-keep`; raises UsageError if unknown."""
    if name not in POLICIES:
        raise UsageError(f"there is no policy '{name}'; choose one of {', '.join(POLICIES)}")
    return POLICIES[name]


class Swap(NamedTuple):
    """One change of a layer's slots: an expert to load, an expert to evict, or both."""

    layer: int
    expert: int  # becomes resident; -1 if the layer loses a slot to another layer
    victim: int  # is evicted; -1 if the expert takes a free slot


class Counts(NamedTuple):
    """The numbers of lookups, hits and loads of one layer's experts."""

    accesses: int = 0
    hits: int = 0
    loads: int = 0
    early_loads: int = 0  # loads of experts that the token had not missed
    early_hits: int = 0  # first uses of such experts


class PolicySettings(Struct, frozen=True):
    """The slots of a model's layers, and the settings of the policy that chooses their experts."""

    kind: PolicyKind
    num_experts: int
    experts_per_token: int
    slots: tuple[int, ...]  # slots of each layer
    # Expert ids by layer; the first ones are pinned, at most half of the slots (static: all).
    pinned: tuple[tuple[int, ...], ...] = ()
    # Slru: a miss takes a slot only if the expert was used more than the victim.
    admission: bool = False
    load_budget: float = 0.0  # learned-prefetch: prefetches per token
    # learned: slots move to layers that need them; all experts must have one size
    moving_slots: bool = False
    warm_pin: int = 0  # how many of its most used experts each layer pins at run time
    # Accesses of all layers together before these are pinned (the warm pin). A fixed set is first
    # chosen after a 64th of them, and again whenever the accesses have doubled.
    warm_pin_after: int = 0
    # Expert ids by layer, best first, that fill free slots at the start.
    warm: tuple[tuple[int, ...], ...] = ()

    @property
    def num_layers(self) -> int:
        return len(self.slots)

    @property
    def all_fit(self) -> bool:
        """True if every expert has a slot, so that none is loaded twice."""
        return all_fit(self.slots, self.num_experts)

    @property
    def own_layers(self) -> range:
        """The layers with slots, and those between them; all layers if none has any."""
        found = [layer for layer, slots in enumerate(self.slots) if slots]
        return range(found[0], found[-1] + 1) if found else range(self.num_layers)

    def next_pin(self, last: int) -> int | None:
        """Returns after how many accesses the next pin is due, after that at `last`, or -1."""
        limit = self.warm_pin_after
        if self.warm_pin <= 0 or last >= max(limit, 0):
            return None
        if self.kind is not PolicyKind.STATIC:
            return limit if last < 0 else None
        following = max(1, limit // whole("FirstChoice"))
        while following <= last:
            following *= 2
        return min(following, limit)

    def pins(self, layer: int) -> tuple[int, ...]:
        """Returns the ids of the experts to pin from the start in a layer, by priority."""
        return self.pinned[layer] if self.pinned else ()


def all_fit(slots: tuple[int, ...], num_experts: int) -> bool:
    """Returns True if every expert has a slot in the layers that have any."""
    return all(count in (0, num_experts) for count in slots)


def default_load_budget(num_layers: int, experts_per_token: int) -> float:
    """Returns the default expert loads per token: about a tenth of a token's lookups."""
    return float(max(1, -(-num_layers * experts_per_token // 10)))


def counting(settings: PolicySettings, num_tokens: int) -> PolicySettings:
    """Returns `settings` changed so that each layer keeps a fixed set of its most used experts.

    At first the set has the experts with the lowest ids. Then it is chosen by the uses of
    `num_tokens` tokens.
    """
    layers = sum(slots > 0 for slots in settings.slots)
    all_experts = (tuple(range(settings.num_experts)),) * settings.num_layers
    return replace(
        settings,
        pinned=(),
        warm=all_experts,
        warm_pin=max(settings.slots),
        warm_pin_after=num_tokens * layers * settings.experts_per_token,
    )
