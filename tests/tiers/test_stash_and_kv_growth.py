"""Memory that experts share: the stash between layers, and a KV cache that begins small."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tier_cases import GIB, MIB, MODELS, SETTINGS, model, moe_layer, plan_of, request

from sharpi.tiers.expert_memory import (
    LEAST_PAGES,
    NO_STASH,
    first_pages,
    max_stash_bytes,
    prompt_stash,
    token_bytes,
)
from sharpi.tiers.facts import ModelFacts
from sharpi.tiers.gpu import RESERVE_BYTES
from sharpi.tiers.plan import Purpose, Tier, TierPlan
from sharpi.tiers.settings import PlanRequest

REQUEST = request()
PAGING = {
    "paged_stash": True, "stash_page_tokens": 10, "stash_gpu_factor": 0.5, "stash_cpu_factor": 0.75,
}  # fmt: skip
PAGED = request(**PAGING)


def test_a_whole_context_where_there_is_room() -> None:
    token = token_bytes(model())
    plan = prompt_stash(model(), REQUEST, GIB)
    assert (plan.max_tokens, plan.gpu_bytes, plan.host_bytes) == (256, 256 * token, 0)
    paged = prompt_stash(model(), PAGED, GIB)
    assert (paged.gpu_pages, paged.host_pages) == (13, 20)
    assert (paged.gpu_bytes, paged.host_bytes) == (130 * token, 200 * token)


def test_one_batch_alone_needs_none() -> None:
    assert prompt_stash(model(), request(batch_size=256), GIB) == NO_STASH
    assert prompt_stash(model(), REQUEST, 16 * 31 * token_bytes(model())) == NO_STASH
    assert prompt_stash(model(), REQUEST, 16 * 32 * token_bytes(model())).max_tokens == 32
    assert prompt_stash(model(), REQUEST, -1) == NO_STASH


@given(
    st.integers(0, 64 * MIB),
    st.integers(0, MIB),
    st.sampled_from([REQUEST, PAGED, request(**(PAGING | {"stash_gpu_factor": 1.1}))]),
)
def test_more_memory_leaves_more_for_slots(budget: int, more: int, asked: PlanRequest) -> None:
    for size in (budget, budget + more):
        plan = prompt_stash(model(), asked, size)
        assert plan.gpu_bytes <= max_stash_bytes(model(), asked, size)
        assert plan.max_tokens % SETTINGS.batch_size == 0
    left = [size - max_stash_bytes(model(), asked, size) for size in (budget, budget + more)]
    assert left[0] <= left[1] + 1


@pytest.mark.parametrize("vram", [620 * MIB, 630 * MIB])
def test_both_tiers_account_for_it(vram: int) -> None:
    plan = plan_of(model(), vram=vram, **PAGING)
    assert plan.gpus[0].stash.max_tokens == 256
    assert plan.bytes_in(Tier.VRAM, Purpose.STASH) == plan.gpus[0].stash.gpu_bytes > 0
    assert plan.bytes_in(Tier.RAM, Purpose.STASH) == plan.gpus[0].stash.host_bytes > 0
    assert plan.bytes_in(Tier.VRAM) <= vram


PAGES, FIRST = 16, 4


def plan(of: ModelFacts, vram: int, **wishes: object) -> TierPlan:
    kv = tuple(PAGES * layer.kv_page_bytes for layer in of.layers)
    usual: dict[str, object] = {
        "context_size": 64 * PAGES, "ram": 8 * GIB, "vram": vram, "gpu_scratch": MIB, "gpu_kv": kv,
        "gpu_kv_first": tuple(size * FIRST // PAGES for size in kv), "kv_first_pages": FIRST,
    }  # fmt: skip
    return plan_of(of, **(usual | wishes))


def whole(of: ModelFacts) -> int:
    """Returns the VRAM for everything but the experts."""
    return (
        RESERVE_BYTES
        + MIB
        + of.output_bytes
        + sum(layer.dense_weights_bytes + PAGES * layer.kv_page_bytes for layer in of.layers)
    )


def test_slots_take_what_the_cache_does_not_need_yet() -> None:
    facts = model(*[replace(moe_layer(), kv_page_bytes=MIB)] * 4)
    vram = whole(facts) + 48 * MIB
    found = plan(facts, vram)
    small = plan(facts, vram, gpu_kv_first=None)
    assert found.gpus[0].growth is not None
    assert small.gpus[0].growth is None
    assert sum(found.vram_slots) > sum(small.vram_slots)
    assert found.bytes_in(Tier.VRAM, Purpose.KV) == 4 * FIRST * MIB
    assert sum(layer.kv_bytes for layer in found.layers) == 4 * FIRST * MIB
    last = found.gpus[0].growth.slots_beside(0)
    assert max(last.values()) < max(found.vram_slots)
    assert any("takes slots back" in note for note in found.notes)


@pytest.mark.parametrize("options", [{"gpu_layers": 4}, {"cpu_moe": True}, {"moe_slots": 1}])
def test_where_slots_would_not_be_more_it_is_whole(options: dict[str, Any]) -> None:
    facts = model(*[replace(moe_layer(), kv_page_bytes=MIB)] * 4)
    assert plan(facts, whole(facts) + 48 * MIB, **options).gpus[0].growth is None


@settings(max_examples=60)
@given(facts=MODELS, extra=st.integers(0, 400 * MIB), pages=st.integers(FIRST, PAGES))
def test_no_size_of_the_cache_takes_more_than_there_is(
    facts: ModelFacts, extra: int, pages: int
) -> None:
    found = plan(facts, whole(facts) + extra)
    assert found.bytes_in(Tier.VRAM) <= found.vram_budget
    if found.gpus[0].growth is None:
        return
    kv = [layer.kv_page_bytes for layer in facts.layers]
    slots = found.gpus[0].growth.slots_beside((PAGES - pages) * sum(kv))
    beside = found.bytes_in(Tier.VRAM) - sum(
        found.bytes_in(Tier.VRAM, purpose) for purpose in (Purpose.KV, Purpose.SLOTS)
    )
    taken = sum(facts.layers[i].slot_bytes * count for i, count in slots.items())
    moving = max(pages * size for size in kv)
    assert beside + taken + pages * sum(kv) + moving <= found.vram_budget
    for layer in found.layers:
        if layer.num_experts and layer.vram_slots == layer.num_experts:
            assert slots[layer.index] == layer.num_experts
        else:
            assert slots.get(layer.index, 0) <= layer.vram_slots


def test_a_cache_begins_with_a_quarter_or_a_usual_conversation() -> None:
    assert first_pages(10) == 10
    assert first_pages(2 * LEAST_PAGES) == LEAST_PAGES
    assert first_pages(8 * LEAST_PAGES) == 2 * LEAST_PAGES
