"""Chooses the slot policy and the predictor of a run: those that the user requests, or defaults."""

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from sharpi.errors import UsageError
from sharpi.experts.policy_settings import (
    PREDICTOR_NAMES,
    PolicyKind,
    PolicySettings,
    all_fit,
    counting,
    default_load_budget,
    policy_kind,
)
from sharpi.ops.slot_rules import whole
from sharpi.settings import ExpertConfig

if TYPE_CHECKING:
    from sharpi.experts.profile import ExpertProfile

_FLOAT_BYTES, _LINE_FLOATS = 4, 16
_VECTORS = 4  # bias, scores, previous scores, errors
_OF_A_SPAN = 3  # of recent uses: counts, previous counts and weights


def learned_bytes(kind: PolicyKind, num_experts: int) -> int:
    """Returns the bytes of the maps of one layer for a policy; 0 if the policy does not learn."""
    if not kind.is_learned:
        return 0
    ahead = kind.prefetches
    has_few = ahead and num_experts <= whole("FewExperts")
    last = whole("MostLayers" if has_few else "LastLayers")
    hashed = num_hashed_rows(num_experts) if ahead else 0
    near = whole("NearLayers") + last
    within = near + whole("MoreLayersWithin") * has_few
    num_bytes = _map_bytes(within, num_experts, hashed, follows_text=ahead)
    if ahead:
        num_bytes += _map_bytes(near + last, num_experts, hashed, follows_text=True)
    return num_bytes


def num_hashed_rows(num_experts: int) -> int:
    """Returns the number of rows of a layer's hashed table for combinations of experts."""
    rows = whole("MostTableRows")
    while rows > 1 and rows * num_experts > whole("MostTableFloats"):
        rows //= 2
    return rows


def _map_bytes(num_sources: int, num_experts: int, num_hashed: int, *, follows_text: bool) -> int:
    stride = -(-num_experts // _LINE_FLOATS) * _LINE_FLOATS
    rows = num_sources * num_experts * (2 if follows_text else 1) + num_hashed
    rows += _VECTORS + _OF_A_SPAN * whole("Spans") * follows_text
    return _FLOAT_BYTES * (rows * stride + num_hashed)


def parse_ids(text: str, num_experts: int) -> tuple[int, ...]:
    """Returns the ids in `1,2,3` or `0-7`, without repeats; raises UsageError for others."""
    ids = dict.fromkeys(
        expert for part in text.split(",") if part.strip() for expert in _range(part.strip(), text)
    )
    if not ids:
        raise UsageError(f"'{text}' names no expert; write ids as in 1,2,5 or 0-7")
    if max(ids) >= num_experts:
        raise UsageError(f"'{text}' names expert {max(ids)}; the last one is {num_experts - 1}")
    return tuple(ids)


def _range(part: str, text: str) -> range:
    match = re.fullmatch(r"(\d{1,6})(?:\s*-\s*(\d{1,6}))?", part)
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise UsageError(
            f"'{part}' in '{text}' is neither an expert id nor a range; write 3 or 0-7"
        )
    return range(int(match[1]), int(match[2] or match[1]) + 1)


LEARNED = "learned"  # the predictor that is part of the policy of the same name
DEFAULT_PREDICTOR = "router"
_PIN_AFTER = 512  # accesses; on recorded routes, pinning later hits no more often


class ExpertShape(Struct, frozen=True):
    """The number of a model's routed experts, the slots for them, and the tier of the slots."""

    num_experts: int
    experts_per_token: int
    slots: tuple[int, ...]  # slots by layer index; 0 in dense layers
    on_gpu: bool = False  # slots are in VRAM, where only missed experts are loaded
    uses_small_maps: bool = False  # too little memory for the maps of policies that look ahead

    @property
    def num_moe_layers(self) -> int:
        return sum(slots > 0 for slots in self.slots)

    @property
    def all_fit(self) -> bool:
        """True if every expert has a slot, so that none is loaded twice."""
        return all_fit(self.slots, self.num_experts)


def choose_policy(
    config: ExpertConfig, shape: ExpertShape, profile: "ExpertProfile | None"
) -> PolicySettings:
    """Returns the policy's settings, with experts ranked by `profile`; raises UsageError."""
    kind = _kind(config, shape)
    budget = config.load_budget
    if budget is None:
        budget = default_load_budget(shape.num_moe_layers, shape.experts_per_token)
    ranked = () if profile is None else tuple(map(profile.ranked, range(len(shape.slots))))
    settings = PolicySettings(
        kind,
        shape.num_experts,
        shape.experts_per_token,
        shape.slots,
        pinned=_resident_set(config, shape, ranked) if kind is PolicyKind.STATIC else (),
        warm=() if kind is PolicyKind.STATIC else ranked,
        load_budget=budget,
        warm_pin=_warm_pin(config, shape, kind),
        warm_pin_after=_PIN_AFTER if config.warm_pin_after is None else config.warm_pin_after,
    )
    is_counting = config.resident == "frequency" and not ranked
    return counting(settings, config.warmup_tokens) if is_counting else settings


def learned_sizes(config: ExpertConfig, num_experts: int, *, on_gpu: bool) -> tuple[int, int]:
    """Returns the bytes of a layer's maps, usual and smaller ones; 0 without learning."""
    usual, little = (
        _kind(config, ExpertShape(num_experts, 1, (1,), on_gpu, uses_small_maps=uses_small_maps))
        for uses_small_maps in (False, True)
    )
    if on_gpu and usual.prefetches:
        usual = little = PolicyKind.LEARNED_KEEP
    return learned_bytes(usual, num_experts), learned_bytes(little, num_experts)


def pin_note(config: ExpertConfig, settings: PolicySettings) -> str | None:
    """Returns why no experts will be pinned; None if some will, or if the user wants none."""
    if settings.kind is PolicyKind.STATIC or config.warm_pin == 0 or settings.all_fit:
        return None
    if config.warm_pin is None and not settings.warm_pin:
        policy = settings.kind.label
        is_lru = settings.kind is PolicyKind.LRU  # lru itself may gain by a pin
        loses = "has fewer hits than the default policy" if is_lru else "costs hits"
        return f"no warm pin: with {policy} and these slots it {loses}; --moe-warmpin N pins N"
    if config.warm_pin and not settings.warm_pin:
        return "no warm pin: a layer's only slot stays free for the expert that is needed"
    return None


def choose_predictor(config: ExpertConfig, shape: ExpertShape) -> str | None:
    """Returns the name of the predictor, or None for no predictions.

    There are none if prefetching is off, if every expert has a slot, or if the policy itself
    predicts. Raises UsageError for an unknown name.
    """
    if config.predictor not in (None, LEARNED, *PREDICTOR_NAMES):
        names = ", ".join((*PREDICTOR_NAMES, LEARNED))
        raise UsageError(f"there is no predictor '{config.predictor}'; choose one of {names}")
    if not config.prefetch or shape.all_fit or config.predictor == LEARNED:
        return None
    return config.predictor or DEFAULT_PREDICTOR


def _kind(config: ExpertConfig, shape: ExpertShape) -> PolicyKind:
    name: str | None = config.policy or ("static" if config.resident else None)
    if name is None:
        return _default_kind(config, shape)
    kind = policy_kind(name)
    if config.predictor == LEARNED and not kind.is_learned:
        raise UsageError(f"--moe-predictor learned needs a learned policy, not {name}")
    return PolicyKind.LEARNED_KEEP if kind.prefetches and not config.prefetch else kind


def _default_kind(config: ExpertConfig, shape: ExpertShape) -> PolicyKind:
    """Returns slru for slots in VRAM, a learned policy for those in RAM, lru if all experts fit."""
    if config.predictor == LEARNED:
        return PolicyKind.LEARNED_PREFETCH if config.prefetch else PolicyKind.LEARNED_KEEP
    if shape.all_fit:
        return PolicyKind.LRU
    if shape.on_gpu:
        return PolicyKind.SLRU
    may_prefetch = config.prefetch and not shape.uses_small_maps
    return PolicyKind.LEARNED_PREFETCH if may_prefetch else PolicyKind.LEARNED_KEEP


def is_default(config: ExpertConfig, kind: PolicyKind) -> bool:
    """Returns True for slots of a default policy, which trials may switch off."""
    is_chosen = (
        config.policy is not None or config.predictor == LEARNED or config.load_budget is not None
    )
    return not is_chosen and kind is not PolicyKind.STATIC


def _resident_set(
    config: ExpertConfig, shape: ExpertShape, ranked: tuple[tuple[int, ...], ...]
) -> tuple[tuple[int, ...], ...]:
    if config.resident == "ids" or config.resident_ids:
        return (parse_ids(config.resident_ids or "", shape.num_experts),) * len(shape.slots)
    if config.resident == "frequency":
        return ranked
    return (tuple(range(shape.num_experts)),) * len(shape.slots)


def _warm_pin(config: ExpertConfig, shape: ExpertShape, kind: PolicyKind) -> int:
    """Returns how many of its most used experts each layer pins after some accesses."""
    # For any other policy than lru, or with fewer slots, a pin costs hits: with 4 slots for 32
    # experts of GPT-OSS 11 percentage points for lru and 13 for learned-keep.
    # At most half of a layer's slots can be pinned.
    if kind is PolicyKind.STATIC or shape.all_fit or max(shape.slots) < 2:
        return 0
    if config.warm_pin is not None:
        return config.warm_pin
    fewest = min(filter(None, shape.slots), default=0)
    has_many = 2 * fewest >= shape.num_experts
    return shape.experts_per_token if kind is PolicyKind.LRU and has_many else 0
