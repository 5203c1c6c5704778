"""Chooses the policy and the predictor of a run: those the user asked for, or the defaults."""

from msgspec import Struct

from sharpi.config import ExpertConfig
from sharpi.errors import UsageError
from sharpi.experts.native.feed import PREDICTOR_NAMES
from sharpi.experts.policy_settings import (
    PolicyKind,
    PolicySettings,
    default_load_budget,
    policy_kind,
)
from sharpi.experts.profile import ExpertProfile
from sharpi.experts.static_set import parse_ids

LEARNED = "learned"  # a predictor that is part of the policy of the same name
DEFAULT_PREDICTOR = "router"
_PREFETCHING = (PolicyKind.LEARNED, PolicyKind.LEARNED_TOKEN_END)


class ExpertShape(Struct, frozen=True):
    """A model's routed experts and their slots."""

    num_experts: int
    experts_per_token: int
    slots: tuple[int, ...]  # by layer index; 0 in dense layers

    @property
    def num_moe_layers(self) -> int:
        return sum(slots > 0 for slots in self.slots)

    @property
    def all_fit(self) -> bool:
        """True if every expert has a slot, so that none is loaded twice."""
        return all(slots in (0, self.num_experts) for slots in self.slots)


def choose_policy(
    asked: ExpertConfig, shape: ExpertShape, profile: ExpertProfile | None
) -> PolicySettings:
    """Returns the policy's settings; raises UsageError for unknown names and expert ids."""
    kind = _kind(asked, shape)
    budget = asked.load_budget
    if budget is None:
        budget = default_load_budget(shape.num_moe_layers, shape.experts_per_token)
    ranked = _ranked(profile, shape)
    is_counting = asked.resident == "frequency" and not ranked
    return PolicySettings(
        kind,
        shape.num_experts,
        shape.experts_per_token,
        shape.slots,
        pinned=_resident_set(asked, shape, ranked) if kind is PolicyKind.STATIC else (),
        warm=ranked,
        load_budget=budget,
        warm_pin=max(shape.slots) if is_counting else asked.warm_pin or 0,
        warm_pin_after=_warm_pin_after(asked, shape, is_counting=is_counting),
    )


def choose_predictor(asked: ExpertConfig, shape: ExpertShape) -> str | None:
    """Returns the predictor's name, or None if nothing is predicted; raises UsageError."""
    if asked.predictor not in (None, LEARNED, *PREDICTOR_NAMES):
        names = ", ".join((*PREDICTOR_NAMES, LEARNED))
        raise UsageError(f"there is no predictor '{asked.predictor}'; choose one of {names}")
    if not asked.prefetch or shape.all_fit or asked.predictor == LEARNED:
        return None
    return asked.predictor or DEFAULT_PREDICTOR


def _kind(asked: ExpertConfig, shape: ExpertShape) -> PolicyKind:
    name = asked.policy or ("static" if asked.resident else None)
    if name is None and asked.predictor == LEARNED:
        name = LEARNED
    if name is None:
        return PolicyKind.LRU if shape.all_fit else PolicyKind.LEARNED_KEEP
    kind = policy_kind(name)
    if asked.predictor == LEARNED and not kind.is_learned:
        raise UsageError(f"--moe-predictor learned needs a learned policy, not {name}")
    return PolicyKind.LEARNED_KEEP if kind in _PREFETCHING and not asked.prefetch else kind


def _resident_set(
    asked: ExpertConfig, shape: ExpertShape, ranked: tuple[tuple[int, ...], ...]
) -> tuple[tuple[int, ...], ...]:
    if asked.resident == "ids" or asked.resident_ids:
        return (parse_ids(asked.resident_ids or "", shape.num_experts),) * len(shape.slots)
    if asked.resident == "frequency":
        return ranked
    return (tuple(range(shape.num_experts)),) * len(shape.slots)


def _ranked(profile: ExpertProfile | None, shape: ExpertShape) -> tuple[tuple[int, ...], ...]:
    if profile is None:
        return ()
    return tuple(profile.ranked(layer) for layer in range(len(shape.slots)))


def _warm_pin_after(asked: ExpertConfig, shape: ExpertShape, *, is_counting: bool) -> int:
    """Returns the number of accesses of all layers before the warm pin."""
    if asked.warm_pin_after is not None and not is_counting:
        return asked.warm_pin_after
    return asked.warmup_tokens * shape.num_moe_layers * shape.experts_per_token
