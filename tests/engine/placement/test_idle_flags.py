"""Every flag about experts, with every policy, tier and command, has an effect or a note."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from sharpi.cli.options.loading import engine as engine_options
from sharpi.cli.options.loading.expert import ExpertOptions
from sharpi.cli.options.loading.miss import MissOptions
from sharpi.cli.options.loading.record import RecordOptions
from sharpi.cli.options.loading.tier import TierOptions
from sharpi.config import ExpertConfig, GivenFlags, RunConfig
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.placement.expert_use import ExpertUse, SlotUse
from sharpi.engine.placement.idle_flags import (
    DEBUG,
    FLAGS,
    GPU,
    OF_LAYERS,
    PREFETCH,
    SET,
    STASH,
    WARM_PIN,
    idle_notes,
    notes_on_given,
    why_idle,
)
from sharpi.engine.placement.slot_requests import PLAIN_POLICIES
from sharpi.experts.policy_settings import POLICIES
from sharpi.experts.simulation.simulate import Simulation, SimulationRow, simulate
from sharpi.experts.trace.trace import Trace
from sharpi.resources import demo_model

COMMANDS = ("run", "chat", "serve", "bench", "perplexity", "logits")
TIERS = ("dense", "mapped", "ram+disk", "vram", "vram+ram", "vram+ram+disk")
LOADS_LATER = ("learned", "learned-token-end", "learned-retain", "learned-prefetch")
DENSE = Path(__file__).parents[2] / "references" / "data" / "llama.gguf"


def asked(flag: str, policy: str, command: str) -> RunConfig:
    """A configuration in which this flag asks for something, as do those that it builds on."""
    is_set = flag in (*SET, "moe_warmup_tokens")
    experts = ExpertConfig(
        policy="static" if is_set else policy,
        warm_pin=2,
        load_budget=3.0,
        predictor="router" if flag == "moe_predictor" else None,
        resident="frequency" if is_set else None,
        resident_ids="0-3" if flag == "moe_resident_ids" else None,
        miss="load",
        paged_stash=flag in STASH,
        capacity_factor=1.0,
        trace_routes=True,
    )
    return RunConfig(
        model=Path("m.gguf"),
        moe_slots=4,
        cpu_moe=flag == "cpu_moe",
        num_cpu_moe=3 if flag == "n_cpu_moe" else 0,
        experts=experts,
        given=GivenFlags(command, ((flag, f"--{flag.replace('_', '-')}"),)),
    )


def used(tier: str, config: RunConfig) -> ExpertUse:
    """What the loader makes of the configuration on these tiers."""
    policy = config.experts.policy or "learned-prefetch"
    loading = SlotUse("learned-keep" if policy in LOADS_LATER else policy, "router", 2, 4)
    below = SlotUse(policy if policy in PLAIN_POLICIES else "slru", "router", 2, 4)
    only_prompts = config.given.command in ("perplexity", "logits")
    uses = {
        "dense": ExpertUse(),
        "mapped": ExpertUse(16),
        "ram+disk": ExpertUse(16, ram=SlotUse(policy, "router", 2, 4)),
        "vram": ExpertUse(16, 0),
        "vram+ram": ExpertUse(16, 0, loading, None, "load", reads_ram=True, has_stash=True),
        "vram+ram+disk": ExpertUse(16, 0, replace(loading, predictor=None), below, "cpu"),
    }  # fmt: skip
    return replace(uses[tier], only_prompts=only_prompts)


def has_effect(flag: str, tier: str, policy: str, command: str) -> bool:
    """Says if the flag should have an effect, by rules written independently of the table."""
    on_gpu = {
        "vram": ("cpu_moe", "n_cpu_moe", "moe_capacity_factor"),
        "vram+ram": GPU,
        "vram+ram+disk": ("cpu_moe", "n_cpu_moe", "moe_capacity_factor"),
    }
    if tier == "dense" or flag in ("moe_slots", "trace_moe"):
        return tier != "dense"
    if flag in GPU:
        return flag in on_gpu.get(tier, ())
    if tier in ("mapped", "vram"):
        return False
    if flag in PREFETCH:
        return command not in ("perplexity", "logits")
    if flag in WARM_PIN:
        return policy != "static" or tier == "vram+ram+disk"
    if flag == "moe_load_budget":
        return tier == "ram+disk" and policy in LOADS_LATER
    return flag != "moe_policy" or tier == "ram+disk" or policy not in LOADS_LATER


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("tier", TIERS)
def test_every_flag_with_every_policy_tier_and_command(flag: str, tier: str) -> None:
    for policy, command in product(POLICIES, COMMANDS):
        config = asked(flag, policy, command)
        notes = list(idle_notes(config, used(tier, config)))
        name = config.given.names[0][1]
        where = (flag, tier, policy, command, notes)
        assert (notes == []) == has_effect(flag, tier, policy, command), where
        assert all(note.startswith(f"{name} has no effect: ") for note in notes), where


def test_the_use_is_not_asked_for_without_a_flag() -> None:
    def fail() -> ExpertUse:
        raise AssertionError("nothing was given")

    assert not list(notes_on_given(RunConfig(model=Path("m.gguf")), fail))


def test_the_table_is_about_every_option_of_experts() -> None:
    records = {"moe_trace", "moe_profile", "expert_stats"}  # written for any model with experts
    fields = {
        name
        for group in (ExpertOptions, MissOptions, RecordOptions, TierOptions)
        for name in group.__struct_fields__
        if "moe" in name or "expert" in name
    }
    assert set(FLAGS) == fields - records == set(engine_options._NOTED) - {*DEBUG, *OF_LAYERS}


@pytest.mark.parametrize("flag", OF_LAYERS)
def test_layers_that_no_gpu_computes(flag: str) -> None:
    """A run that asks for a GPU says itself why there is none."""
    asked = RunConfig(model=Path("m.gguf"), given=GivenFlags("run", ((flag, "-g"),)))
    planned = replace(asked, given=replace(asked.given, command="plan"))
    on_cpu = replace(asked, device="cpu")
    note = ["-g has no effect: no layer is on a GPU"]
    assert [list(idle_notes(each, ExpertUse())) for each in (asked, planned, on_cpu)] == [
        [], note, note,
    ]  # fmt: skip
    assert not list(idle_notes(planned, ExpertUse(0, 0)))


def test_no_layers_on_a_gpu_is_what_a_cpu_does() -> None:
    given = GivenFlags("plan", (("gpu_layers", "-g"),))
    config = RunConfig(model=Path("m.gguf"), gpu_layers=0, given=given)
    assert not list(idle_notes(config, ExpertUse()))


@pytest.mark.parametrize(
    ("flag", "experts"),
    [
        ("moe_warmpin", ExpertConfig(warm_pin=0)),
        ("moe_predict_prefetch", ExpertConfig(prefetch=False)),
        ("moe_paged_stash", ExpertConfig()),
        ("moe_miss", ExpertConfig()),
    ],
)
def test_what_asks_for_nothing_needs_no_note(flag: str, experts: ExpertConfig) -> None:
    config = RunConfig(model=Path("m.gguf"), experts=experts)
    assert [why_idle(flag, config, used(tier, config)) for tier in TIERS] == [None] * len(TIERS)


def test_the_policies_with_a_load_budget_are_those_that_heed_it() -> None:
    random = np.random.default_rng(7)
    liking = random.normal(0, 1.5, (4, 32)) + random.gumbel(size=(300, 4, 32))
    routes = np.argsort(-liking, axis=-1)[..., :4].astype(np.int32)
    trace = Trace(routes, np.array([300]), 32)

    def replayed(policy: str, budget: float) -> SimulationRow:
        row = simulate(trace, policy, 8, Simulation(load_budget=budget))
        return replace(row, microseconds_per_token=0.0)

    heeding = {name for name in POLICIES if replayed(name, 0.0) != replayed(name, 1000.0)}
    assert heeding == set(LOADS_LATER)


def notes_of(model: Path, experts: ExpertConfig, slots: int | None = None, **given: str) -> str:
    config = RunConfig(
        model=model,
        moe_slots=slots,
        experts=experts,
        given=GivenFlags("run", tuple((flag, name) for flag, name in given.items())),
    )
    engine: Engine = load_engine(config)
    engine.close()
    return "\n".join(note for note in engine.notes if "--" in note)


@pytest.mark.native
class TestLoaded:
    def test_mapped(self) -> None:
        notes = notes_of(demo_model(), ExpertConfig(policy="lru"), moe_policy="--moe-policy")
        assert notes == "--moe-policy has no effect: all experts are in RAM"

    def test_a_prompt_cache_that_keeps_nothing(self, tmp_path: Path) -> None:
        config = RunConfig(
            model=demo_model(),
            prompt_cache=tmp_path,
            prompt_cache_bytes=0,
            given=GivenFlags("run", (("prompt_cache", "--prompt-cache"),)),
        )
        with load_engine(config) as engine:
            note = "--prompt-cache has no effect: --prompt-cache-size 0 keeps nothing"
            assert note in engine.notes

    def test_dense(self) -> None:
        notes = notes_of(DENSE, ExpertConfig(trace_routes=True), trace_moe="--trace-moe")
        assert notes == "--trace-moe has no effect: the model has no routed experts"

    @pytest.mark.parametrize(
        ("experts", "flag", "reason"),
        [
            (
                ExpertConfig(policy="learned", prefetch=False),
                "moe_policy",
                "has no effect: without prefetch nothing is loaded early, so learned-keep is used",
            ),
            (
                ExpertConfig(load_budget=3.0, policy="learned-keep"),
                "moe_load_budget",
                "has no effect: learned-keep loads whatever is missed",
            ),
            (
                ExpertConfig(resident="frequency", policy="static", warm_pin=2),
                "moe_warmpin",
                "has no effect: a fixed set is never evicted",
            ),
            (
                ExpertConfig(warmup_tokens=9),
                "moe_warmup_tokens",
                "has no effect: only --moe-resident frequency counts tokens first",
            ),
            (
                ExpertConfig(resident="ids", policy="static", resident_ids="0-9"),
                "moe_resident_ids",
                ": 10 ids for 4 slots of a layer; the first are kept",
            ),
            (ExpertConfig(policy="lfu", warm_pin=2), "moe_warmpin", ""),
        ],
    )
    def test_slots(self, experts: ExpertConfig, flag: str, reason: str) -> None:
        notes = notes_of(demo_model(), experts, 4, **{flag: "--" + flag.replace("_", "-")})
        assert notes.endswith(reason)
        assert bool(notes) == bool(reason)

    def test_more_slots_than_experts(self) -> None:
        notes = notes_of(demo_model(), ExpertConfig(), 40, moe_slots="--moe-slots")
        assert (
            notes == "--moe-slots has no effect: a layer has only 16 experts, and all have a slot"
        )
