"""The size of a stash between layers: within its share of memory, and 0 if it does not pay."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tier_cases import GIB, MIB, SETTINGS, model, plan_of, request

from sharpi.tiers.plan import Purpose, Tier
from sharpi.tiers.prompt_stash import NO_STASH, max_stash_bytes, prompt_stash, token_bytes
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


@settings(max_examples=200, deadline=None)
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
    assert plan.stash.max_tokens == 256
    assert plan.bytes_in(Tier.VRAM, Purpose.STASH) == plan.stash.gpu_bytes > 0
    assert plan.bytes_in(Tier.RAM, Purpose.STASH) == plan.stash.host_bytes > 0
    assert plan.bytes_in(Tier.VRAM) <= vram
