"""What drafts may gain, by hand: tokens of a check over the bytes that it reads."""

from msgspec.structs import replace
from tier_cases import GIB, MIB, model, plan_of

from sharpi.tiers.draft_gain import draft_notes
from sharpi.tiers.facts import ModelFacts

TOKENS = 1 + 0.9 + 0.9**2 + 0.9**3
DENSE, EXPERTS = 24 * MIB, 24 * MIB  # of a token, as in test_speed.py


def notes(facts: ModelFacts, **asked: object) -> list[str]:
    return list(draft_notes(facts, plan_of(facts, **asked)))


def test_tokens_over_bytes() -> None:
    unlike = 8 / 2 * (1 - (1 - 2 / 8) ** 4)  # two of eight experts
    low, high = (TOKENS * (DENSE + EXPERTS) / (DENSE + EXPERTS * ratio) for ratio in (unlike, 2.30))
    (note,) = notes(model())
    assert f"{low:.1f} to {high:.1f} times as fast" in note


def test_reads_from_a_disk_are_of_experts_alone() -> None:
    (note,) = notes(model(), moe_slots=2)
    assert f"to {TOKENS / 2.30:.1f} times as fast" in note


def test_a_head_costs_its_layer_and_the_output_for_every_draft() -> None:
    facts = model()
    headed = replace(facts, layers=(*facts.layers, facts.layers[-1]), has_head=True)
    text, head = notes(headed)
    assert text == notes(facts)[0]
    drafting = (5 + 2 * 3 + 4) * MIB
    cost = (DENSE + EXPERTS * 1.55 + drafting) / (DENSE + EXPERTS)
    assert f"{1.7 / cost:.1f} times as fast" in head


def test_nothing_is_promised_where_it_was_not_measured() -> None:
    assert notes(model(), vram=2 * GIB) == []
    assert notes(model(), ram=MIB) == []
