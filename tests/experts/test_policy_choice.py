"""The policy and the predictor that follow from the options of a run, and a policy's memory."""

import numpy as np
import pytest
import reference_learned_contexts
from for_each import for_each
from msgspec.structs import replace
from reference_learned import Learned
from reference_learned_map import LearnedMap

from sharpi.errors import UsageError
from sharpi.experts.policy_choice import (
    DEFAULT_PREDICTOR,
    ExpertShape,
    choose_policy,
    choose_predictor,
    learned_bytes,
    num_hashed_rows,
    parse_ids,
    pin_note,
)
from sharpi.experts.policy_settings import POLICIES, PREDICTOR_NAMES, PolicyKind, PolicySettings
from sharpi.experts.profile import ExpertProfile
from sharpi.settings import ExpertConfig

FEW = ExpertShape(num_experts=8, experts_per_token=2, slots=(0, 3, 4))
ALL = ExpertShape(num_experts=8, experts_per_token=2, slots=(0, 8, 8))
USES = np.array([[0] * 8, [0, 9, 0, 5, 0, 5, 0, 1], [7, 6, 5, 4, 3, 2, 1, 0]], np.int64)
PROFILE = ExpertProfile("m.gguf", USES)
RANKED = ((), (1, 3, 5, 7), (0, 1, 2, 3, 4, 5, 6))


def policy(profile: ExpertProfile | None = None, **config: object) -> PolicySettings:
    return choose_policy(ExpertConfig(**config), FEW, profile)  # type: ignore[arg-type]


def predictor(shape: ExpertShape = FEW, **config: object) -> str | None:
    return choose_predictor(ExpertConfig(**config), shape)  # type: ignore[arg-type]


def test_nothing_asked() -> None:
    chosen = policy()
    assert chosen.kind is PolicyKind.LEARNED_PREFETCH
    assert (chosen.slots, chosen.num_experts, chosen.experts_per_token) == ((0, 3, 4), 8, 2)
    assert chosen.load_budget == 1  # a tenth of two layers' look-ups, rounded up
    assert chosen.warm_pin == 0
    assert (chosen.pinned, chosen.warm) == ((), ())
    assert predictor() == DEFAULT_PREDICTOR


def test_nothing_to_decide_where_all_experts_fit() -> None:
    assert choose_policy(ExpertConfig(), ALL, None).kind is PolicyKind.LRU
    assert predictor(ALL) is None
    assert predictor(ALL, predictor="both") is None


@for_each("name", POLICIES)
def test_every_policy_by_its_name(name: str) -> None:
    assert policy(policy=name).kind is POLICIES[name]


def test_the_default_follows_the_tier_and_the_user() -> None:
    assert policy(prefetch=False).kind is PolicyKind.LEARNED_KEEP
    in_vram = replace(FEW, on_gpu=True)
    assert choose_policy(ExpertConfig(), in_vram, None).kind is PolicyKind.SLRU


def test_a_load_budget_is_one_of_the_default_policy() -> None:
    chosen = policy(load_budget=7.5)
    assert chosen.kind.prefetches
    assert chosen.load_budget == 7.5


def test_without_prefetch_a_policy_only_keeps_misses() -> None:
    assert policy(policy="learned-prefetch", prefetch=False).kind is PolicyKind.LEARNED_KEEP
    assert policy(policy="slru", prefetch=False).kind is PolicyKind.SLRU


@for_each("name", PREDICTOR_NAMES)
def test_every_predictor_by_its_name(name: str) -> None:
    assert predictor(predictor=name) == name
    assert predictor(predictor=name, prefetch=False) is None


def test_the_learned_predictor_is_part_of_a_learned_policy() -> None:
    assert policy(predictor="learned").kind is PolicyKind.LEARNED_PREFETCH
    assert policy(predictor="learned", policy="learned-keep").kind is PolicyKind.LEARNED_KEEP
    assert predictor(predictor="learned") is None


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (
            {"policy": "lfu"},
            "no policy 'lfu'; choose one of slru, lru, lfru, static, learned-keep, learned-pref",
        ),
        ({"predictor": "oracle"}, "no predictor 'oracle'; choose one of last-token, .*, learned"),
        ({"predictor": "learned", "policy": "lru"}, "learned needs a learned policy, not lru"),
        ({"predictor": "learned", "resident": "first-n"}, "learned needs a learned policy"),
        ({"resident": "ids", "resident_ids": "1,8"}, "names expert 8; the last one is 7"),
        ({"resident": "ids", "resident_ids": "x"}, "'x'"),
        ({"resident": "ids"}, "names no expert"),
    ],
)
def test_refusals(config: dict[str, object], complaint: str) -> None:
    def choose() -> None:
        policy(**config)
        predictor(**config)

    with pytest.raises(UsageError, match=complaint) as error:
        choose()
    assert "\n" not in str(error.value)


def test_a_fixed_set() -> None:
    all_experts = (tuple(range(8)),) * 3
    assert policy(resident="first-n").kind is PolicyKind.STATIC
    assert policy(resident="first-n").pinned == all_experts
    assert policy(policy="static").pinned == all_experts
    assert policy(resident="ids", resident_ids="6,,1-2").pinned == ((6, 1, 2),) * 3


def test_a_profile_ranks_and_warms() -> None:
    chosen = policy(PROFILE, resident="frequency")
    assert (chosen.kind, chosen.pinned) == (PolicyKind.STATIC, RANKED)
    assert chosen.warm_pin == 0
    assert policy(PROFILE, policy="slru").warm == RANKED
    assert policy(PROFILE, policy="slru").pinned == ()


def test_frequency_without_a_profile_counts_first() -> None:
    chosen = policy(resident="frequency", warmup_tokens=10)
    assert (chosen.kind, chosen.pinned) == (PolicyKind.STATIC, ())
    assert (chosen.warm_pin, chosen.warm_pin_after) == (4, 10 * 2 * 2)
    assert chosen.warm == (tuple(range(8)),) * 3, "the slots begin with the first experts"


def test_warm_pin_and_load_budget() -> None:
    chosen = policy(policy="slru", warm_pin=2, warm_pin_after=99, load_budget=7.5)
    assert (chosen.warm_pin, chosen.warm_pin_after, chosen.load_budget) == (2, 99, 7.5)
    assert policy(warm_pin=2, warmup_tokens=5).warm_pin_after == 512
    assert policy(warm_pin=0).warm_pin == 0


def shape(slots: int) -> ExpertShape:
    return ExpertShape(num_experts=8, experts_per_token=2, slots=(0, slots, slots))


@for_each("name", POLICIES)
@for_each("slots", [1, 3, 4, 7, 8])
def test_pins_by_itself_where_that_does_not_cost_hits(name: str, slots: int) -> None:
    config = ExpertConfig(policy=name)
    chosen = choose_policy(config, shape(slots), None)
    assert (chosen.warm_pin == 2) == (name == "lru" and slots in (4, 7))
    assert chosen.warm_pin_after == 512
    note = pin_note(config, chosen)
    if name == "static" or chosen.warm_pin or slots == 8:  # with 8, nothing is ever evicted
        assert note is None
    else:
        assert note is not None
        assert f"no warm pin: with {name} " in note
        assert ("than the default policy" in note) == (name == "lru")


def test_what_was_asked_is_pinned_or_explained() -> None:
    for config in (ExpertConfig(warm_pin=2), ExpertConfig(warm_pin=3, policy="lfru")):
        chosen = choose_policy(config, shape(4), None)
        assert chosen.warm_pin == config.warm_pin
        assert pin_note(config, chosen) is None
    assert choose_policy(ExpertConfig(warm_pin=2), shape(8), None).warm_pin == 0
    one = choose_policy(ExpertConfig(warm_pin=2), shape(1), None)
    assert one.warm_pin == 0
    assert "only slot" in (pin_note(ExpertConfig(warm_pin=2), one) or "")
    assert pin_note(ExpertConfig(warm_pin=0), choose_policy(ExpertConfig(), shape(4), None)) is None


def test_when_pins_are_due() -> None:
    pin = policy(policy="lru", warm_pin=1)
    assert (pin.next_pin(-1), pin.next_pin(512), pin.next_pin(9999)) == (512, None, None)
    assert policy(warm_pin=0).next_pin(-1) is None
    chosen = policy(resident="frequency", warmup_tokens=64)
    assert [chosen.next_pin(at) for at in (-1, 4, 9, 200, 256)] == [4, 8, 16, 256, None]


@pytest.mark.parametrize(
    ("text", "ids"),
    [("1,2,,3", (1, 2, 3)), ("0-7", tuple(range(8))), (" 5 , 2 - 3, 2", (5, 2, 3)), ("7", (7,))],
)
def test_ids(text: str, ids: tuple[int, ...]) -> None:
    assert parse_ids(text, 8) == ids


@for_each("text", ["", ",", "8", "0-8", "3-1", "a", "1-2-3", "-1", "1.5"])
def test_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_ids(text, 8)


def bytes_of(learned_map: LearnedMap) -> int:
    """The bytes of a map's arrays of 4-byte numbers."""
    recent = learned_map._recent
    arrays = [*vars(learned_map).values(), *(vars(recent).values() if recent else ())]
    return 4 * sum(each.size for each in arrays if isinstance(each, np.ndarray))


@for_each("num_experts", [16, 32, 64, 128])
@for_each("kind", [kind for kind in PolicyKind if kind.is_learned])
def test_the_tables_of_the_reference(kind: PolicyKind, num_experts: int) -> None:
    policy = Learned(PolicySettings(kind, num_experts, 4, (4,)))
    held = sum(map(bytes_of, (*policy._maps, *policy._within._maps)))
    assert held <= learned_bytes(kind, num_experts) <= 1.02 * held + 4096


def test_policies_that_do_not_learn_take_nothing() -> None:
    assert not any(learned_bytes(kind, 64) for kind in PolicyKind if not kind.is_learned)


@for_each("num_experts", [1, 16, 32, 33, 128, 512])
def test_the_rows_of_combinations(num_experts: int) -> None:
    assert num_hashed_rows(num_experts) == reference_learned_contexts.num_rows(num_experts)
