"""Recorded runs: `simulate` finds what happened in them, and a profile warms the next one."""

from collections.abc import Callable
from pathlib import Path

import pytest
from streamed_models import NUM_EXPERTS, asked, decode, story_ids

from sharpi.engine.engine import Engine
from sharpi.experts.simulation.simulate import Simulation, simulate
from sharpi.experts.stats.stats import ExpertStats
from sharpi.experts.trace.trace import Trace, read_trace

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
SLOTS = NUM_EXPERTS // 2
STORIES = (
    "Once upon a time, there was a little girl who had a red ball. One day",
    "Tom and his dog went to the park. They saw a big",
)


@pytest.fixture
def run(load: Load, quick_demo: Path, tmp_path: Path) -> Callable[..., tuple[ExpertStats, Trace]]:
    """Runs two texts of 150 tokens, each in its own session; the first has a second turn."""

    def run_one(**fields: object) -> tuple[ExpertStats, Trace]:
        experts = asked(trace=tmp_path / "t.npz", **fields)
        options = {"context_size": 512, "batch_size": 16}
        with load(quick_demo, moe_slots=SLOTS, experts=experts, **options) as engine:
            session, prompt = engine.session(), story_ids(engine, STORIES[0])
            answer = decode(session, prompt, 100)
            decode(session, [*prompt, *answer, *story_ids(engine, STORIES[1])], 50)
            decode(engine, story_ids(engine, STORIES[1]), 150)
            stats = engine.expert_stats()
        assert stats is not None
        return stats, read_trace(tmp_path / "t.npz")

    return run_one


Run = Callable[..., tuple[ExpertStats, Trace]]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["slru", "learned-keep", "static"])
def test_without_prefetch_every_hit_and_load_agrees(policy: str, run: Run) -> None:
    stats, trace = run(policy=policy, prefetch=False, warm_pin=0)  # lru pins by itself
    row = simulate(trace, policy, SLOTS, Simulation())
    # A static set is still being read when the first tokens need it: they wait, as for a miss.
    assert stats.total.hit_count.hits + stats.total.late == pytest.approx(
        row.hit_rate * stats.total.hit_count.accesses
    )
    assert stats.total.hit_count.rate == pytest.approx(row.hit_rate, abs=0.01)
    missed = stats.total.hit_count.accesses - stats.total.hit_count.hits - stats.total.late
    assert row.reads_per_token * trace.num_tokens == pytest.approx(missed)


def test_a_policy_that_loads_early(run: Run) -> None:
    """Early reads come behind others: some are late, some are dropped until they are needed."""
    stats, trace = run(predictor="learned")
    assert stats.policy == "learned-prefetch"
    row = simulate(trace, stats.policy, SLOTS, Simulation())
    accesses, hits = stats.total.hit_count
    assert hits / accesses <= row.hit_rate + 0.01
    assert (hits + stats.total.late) / accesses == pytest.approx(row.hit_rate, abs=0.1)


def test_learned_without_prefetch_is_learned_keep(run: Run) -> None:
    stats, trace = run(policy="learned-prefetch", prefetch=False)
    assert stats.policy == "learned-keep"
    row = simulate(trace, "learned-keep", SLOTS, Simulation())
    assert stats.total.hit_count.rate == pytest.approx(row.hit_rate, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["slru", "learned-keep"])
def test_a_profile_warms_the_first_tokens(
    policy: str, load: Load, quick_demo: Path, tmp_path: Path
) -> None:
    def first_hit_rate(profile: Path) -> float:
        experts = asked(policy=policy, prefetch=False, profile=profile)
        with load(quick_demo, moe_slots=SLOTS, context_size=256, experts=experts) as engine:
            decode(engine, story_ids(engine, STORIES[0]), 100)
            stats = engine.expert_stats()
            assert stats is not None
            return (stats.total.hit_count.hits + stats.total.late) / stats.total.hit_count.accesses

    profile = tmp_path / "p.json"
    cold = first_hit_rate(profile)
    assert profile.exists()
    warm = first_hit_rate(profile)
    assert warm > cold
