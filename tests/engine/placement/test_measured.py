"""What a run shows is kept: the next plan expects its hits, and a run compares itself with it."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sharpi.cli.commands.plan import plan_for
from sharpi.engine.loader import load_engine
from sharpi.engine.placement.measured import (
    against_plan,
    decode_hit_rate,
    keep_hits,
    known_misses,
)
from sharpi.experts.layer_stats import PhaseCounts
from sharpi.gguf.reader import open_gguf
from sharpi.resources import demo_model
from sharpi.settings import ExpertConfig, GenerationRequest, RunConfig, SpeculationConfig
from sharpi.settings.sampling import SamplingParams
from sharpi.tiers.plan import TierPlan

pytestmark = pytest.mark.native


@pytest.fixture(autouse=True)
def new_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def config_of(slots: int) -> RunConfig:
    """Without prefetches, so that hits do not depend on how busy the machine is."""
    return RunConfig(
        model=demo_model(),
        context_size=512,
        device="cpu",
        moe_slots=slots,
        experts=ExpertConfig(prefetch=False),
        speculation=SpeculationConfig(kinds=()),
    )


def planned(slots: int) -> TierPlan:
    with open_gguf(demo_model()) as file:
        return plan_for(config_of(slots), file)


def ran(slots: int, seed: int) -> tuple[float, str | None]:
    """Generates a text; returns the hit rate of its tokens, and the line about the plan."""
    sampling = SamplingParams(temperature=1.0, seed=seed)
    request = GenerationRequest(max_tokens=300, ignore_end=True, sampling=sampling)
    with load_engine(config_of(slots)) as engine:
        ids = engine.tokenizer.encode("Once upon a time", add_bos=True, parse_special=False)
        generation = engine.session().generate(ids, request)
        assert "".join(generation)
        hits = decode_hit_rate(engine.expert_stats())
        assert hits is not None
        return hits, engine.against_plan(generation.timings)


@pytest.mark.parametrize("slots", [2, 4, 8, 12])
def test_a_plan_after_a_run_knows_the_hits(slots: int) -> None:
    ran(slots, seed=1)
    speed = planned(slots).speed
    assert speed.is_hit_rate_known
    hits, _ = ran(slots, seed=2)
    assert hits == pytest.approx(speed.hit_rate, abs=0.05)


def test_a_run_that_lacked_a_slot_or_two_is_known_too(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = SimpleNamespace(num_resident=255, num_experts=256)
    decoded = SimpleNamespace(decode=PhaseCounts(accesses=400, hits=399))
    stats = SimpleNamespace(layers=[decoded], num_tokens=100)
    with open_gguf(demo_model()) as file:
        keep_hits(file, cast("TierPlan", SimpleNamespace(layers=[layer])), cast("Any", stats))
        assert list(known_misses(file)) == [0.99]
        monkeypatch.setattr("sharpi.engine.placement.measured.known_figures", lambda _: {"100": 1})
        assert known_misses(file) == {}  # all were resident: nothing follows for fewer slots
    for slots in (4, 15):
        assert 0 < planned(slots).speed.hit_rate <= 1


def test_a_run_is_compared_once_the_machine_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = planned(4)
    assert "about 73 % hits" in (against_plan(first, 7.0, 0.4) or "")
    for kept in (tmp_path / "sharpi").iterdir():
        kept.unlink()
    assert ran(4, seed=1)[1] is None  # no rate was measured yet
    speed = planned(4).speed
    assert speed.is_measured
    assert speed.tokens_per_second == pytest.approx(2 * speed.least_tokens_per_second)
    hits, line = ran(4, seed=2)
    assert line is not None
    assert line.startswith(f"plan {speed.least_tokens_per_second:.1f} to ")
    assert f"{100 * hits:.1f} %" in line
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 0.0, 0.0))
    busy = against_plan(planned(4), 7.0, None)
    assert busy is not None
    assert busy.endswith("this run 7.0, beside busy programs")
