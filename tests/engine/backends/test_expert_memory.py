"""The engine allocates what was planned: slots, staging, KV cache, copied weights, buffers."""

from collections.abc import Callable
from pathlib import Path

import pytest
from scheduled import asked
from streamed_models import (
    DEMO,
    NUM_EXPERTS,
    NUM_LAYERS,
    NUM_USED,
    PROMPT,
    decode,
    write_mixed_model,
)

from sharpi.engine.engine import Engine
from sharpi.errors import UsageError
from sharpi.gguf.copied import copy_bytes
from sharpi.gguf.header import is_expert_matrix
from sharpi.settings import ExpertConfig, SpeculationConfig
from sharpi.system.files import ALIGNMENT
from sharpi.tiers.plan import Purpose, Tier, TierPlan

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
MIB = 1 << 20
SMALL = {"context_size": 128, "batch_size": 64, "num_threads": 2}


def planned(plan: TierPlan, *purposes: Purpose) -> int:
    return sum(plan.bytes_in(Tier.RAM, purpose) for purpose in purposes)


def assert_as_planned(engine: Engine) -> TierPlan:
    """Asserts every allocation against its line of the plan; returns the plan."""
    plan, tier, runner = engine.plan, engine._tier, engine.runner
    assert plan is not None
    assert tier is not None
    held = tier.store.totals().memory_bytes
    assert held == planned(plan, Purpose.SLOTS, Purpose.STAGING)
    assert tier.store.settings.slots == plan.ram_slots
    assert tier.store.settings.num_staging == plan.num_staging == 2 * NUM_USED
    assert runner.parts[0].cache.num_bytes == planned(plan, Purpose.KV)
    programs = [program.num_bytes for program in runner.parts[0]._programs.values()]
    assert 0 < sum(programs) <= planned(plan, Purpose.SCRATCH)
    dense_weights = [
        each for each in engine.file.tensors.values() if not is_expert_matrix(each.name)
    ]
    sizes = sum(each.num_bytes for each in dense_weights)
    assert sizes == planned(plan, Purpose.DENSE_WEIGHTS)
    assert sizes <= copy_bytes(dense_weights) <= sizes + 2 * ALIGNMENT * len(dense_weights)
    assert planned(plan, *Purpose) <= plan.ram_budget
    return plan


@pytest.mark.parametrize("slots", [1, 2, 7, NUM_EXPERTS, 99])
def test_slots_that_were_asked_for(slots: int, load: Load, quick_demo: Path) -> None:
    engine = load(quick_demo, moe_slots=slots, **SMALL)
    decode(engine, PROMPT, 4)
    plan = assert_as_planned(engine)
    assert plan.ram_slots == (min(slots, NUM_EXPERTS),) * NUM_LAYERS


def test_dense_layers_have_no_slots_and_biases_are_dense_weights(
    load: Load, tmp_path: Path
) -> None:
    engine = load(write_mixed_model(tmp_path / "mixed.gguf"), moe_slots=3, **SMALL)
    decode(engine, [1, 2, 3], 4)
    assert assert_as_planned(engine).ram_slots == (0, 3)


@pytest.fixture
def least(load: Load, quick_demo: Path) -> int:
    """Returns the bytes of RAM with one slot per layer, and a policy that learns little."""
    asked = ExpertConfig(policy="learned-keep")
    plan = load(quick_demo, moe_slots=1, experts=asked, **SMALL).plan
    assert plan is not None
    return planned(plan, *Purpose)


def test_budgets_in_small_steps(least: int, load: Load, quick_demo: Path) -> None:
    seen = []
    for step in range(5):
        budget = least + step * MIB
        engine = load(quick_demo, ram=budget, **SMALL)
        decode(engine, PROMPT, 4)
        plan = assert_as_planned(engine)
        assert plan.ram_budget == budget
        seen.append(sum(plan.ram_slots))
        engine.close()
    assert seen == sorted(seen)
    assert seen[0] < seen[-1] < NUM_EXPERTS * NUM_LAYERS


@pytest.mark.slow
def test_drafts_have_more_buffers_and_change_no_text(
    least: int, load: Load, quick_demo: Path
) -> None:
    budget, texts = least + 6 * MIB, []
    for kinds in ((), ("ngram", "suffix")):
        speculation = SpeculationConfig(kinds=kinds, max_drafts=4 if kinds else None)
        engine = load(quick_demo, ram=budget, speculation=speculation, **SMALL)
        generation = engine.session().generate(PROMPT[:20] * 2, asked(60))
        list(generation)
        texts.append(generation.ids)
        plan, tier = engine.plan, engine._tier
        assert plan is not None
        assert tier is not None
        assert tier.store.settings.num_staging == plan.num_staging == (4 if kinds else 2) * NUM_USED
        held = tier.store.totals().memory_bytes
        assert held == planned(plan, Purpose.SLOTS, Purpose.STAGING)
        assert planned(plan, *Purpose) <= budget
    assert texts[0] == texts[1]
    assert engine.speculator.statistics.num_checked > 0


def test_a_budget_for_everything_maps_the_file(load: Load) -> None:
    engine = load(DEMO, ram=64 * MIB, **SMALL)
    assert not engine.streams_experts
    assert engine.plan is not None
    assert engine.plan.is_mapped
    assert engine.plan.num_staging == 0


def test_a_budget_that_is_too_small_is_refused(least: int, load: Load, quick_demo: Path) -> None:
    with pytest.raises(UsageError, match=r"needs at least .* of RAM") as error:
        load(quick_demo, ram=least - 2 * MIB, **SMALL)
    assert "\n" not in str(error.value)
