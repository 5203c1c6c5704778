"""Statistics add up for any policy, number of slots, batch and number of sequences."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scheduled import asked, finish, submit
from streamed_models import DEMO, NUM_EXPERTS, NUM_USED
from streamed_models import asked as asked_of_experts

from sharpi.engine.loader import load_engine
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.experts.policy_settings import POLICIES, PREDICTOR_NAMES
from sharpi.experts.stats.stats import ExpertStats
from sharpi.experts.stats.stats_file import contradiction, read_stats
from sharpi.settings import RunConfig

pytestmark = pytest.mark.native

RUNS = st.fixed_dictionaries(
    {
        "batch_size": st.sampled_from([4, 7, 64]),
        "num_parallel": st.integers(1, 3),
        "prompts": st.lists(st.integers(1, 30), min_size=1, max_size=4),
        "tokens": st.integers(1, 12),
    }
)
EXPERTS = st.one_of(
    st.fixed_dictionaries(
        {
            "policy": st.sampled_from(sorted(set(POLICIES) - {"static"})),
            "prefetch": st.booleans(),
            "warm_pin": st.integers(0, 3),
            "warm_pin_after": st.sampled_from([0, 40, 10**6]),
        }
    ),
    st.fixed_dictionaries({"predictor": st.sampled_from([*PREDICTOR_NAMES, "learned"])}),
    st.fixed_dictionaries({"resident": st.sampled_from(["first-n", "frequency"])}),
)


def answers(run: dict[str, Any], path: Path, **fields: Any) -> ExpertStats:
    """Returns the statistics of a run of some answers, as read from its file."""
    experts = asked_of_experts(stats=path, **fields.pop("experts", {}))
    sizes = {"batch_size": run["batch_size"], "num_parallel": run["num_parallel"]}
    config = RunConfig(model=DEMO, context_size=128, experts=experts, **sizes, **fields)
    with load_engine(config) as engine:
        scheduler = Scheduler(engine, run["num_parallel"])
        for seed, length in enumerate(run["prompts"]):
            prompt = np.random.default_rng(seed).integers(3, 1000, length).tolist()
            submit(scheduler, prompt, asked(run["tokens"]))
        finish(scheduler)
    assert not any("stats" in note for note in engine.exit_notes)
    return read_stats(path)


@pytest.mark.slow
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(run=RUNS, experts=EXPERTS, slots=st.integers(1, NUM_EXPERTS))
def test_lookups_are_those_of_a_mapped_model(
    run: dict[str, Any], experts: dict[str, Any], slots: int, tmp_path: Path
) -> None:
    found = answers(run, tmp_path / "slots.json", moe_slots=slots, experts=experts)
    mapped = answers(run, tmp_path / "mapped.json")
    assert contradiction(found) is None
    assert found.num_prompt_tokens == mapped.num_prompt_tokens
    assert found.num_tokens == mapped.num_tokens
    for some, all_there in zip(found.layers, mapped.layers, strict=True):
        assert some.uses == all_there.uses
        assert some.prompt.accesses == all_there.prompt.accesses
        assert some.decode.accesses == all_there.decode.accesses
        assert some.expert_bytes == all_there.expert_bytes
    alone = found.num_tokens - found.num_beside
    assert found.decode.accesses <= alone * NUM_USED * len(found.layers)
    assert mapped.total.hit_count.rate == 1


def test_prompts_and_decoded_tokens_are_apart(tmp_path: Path) -> None:
    run = {"batch_size": 64, "num_parallel": 1, "prompts": [30], "tokens": 5}
    stats = answers(run, tmp_path / "s.json", moe_slots=4, experts={"prefetch": False})
    assert (stats.num_prompt_tokens, stats.num_tokens) == (30, 4)
    *others, last = stats.layers
    for layer in others:
        assert layer.decode.accesses == 4 * NUM_USED
        assert 4 < layer.prompt.loads <= NUM_EXPERTS
    assert last.prompt.accesses == NUM_USED, "of a prompt it only computes the last token"
    loads = stats.per_token(stats.decode.loads)
    assert loads is not None
    assert loads <= NUM_USED * len(stats.layers)
    text = (tmp_path / "s.json").read_text()
    assert '"prompt"' in text
    assert '"decode"' in text


def test_a_run_that_computes_nothing_leaves_no_file(tmp_path: Path) -> None:
    for slots in (None, 4):
        path = tmp_path / "s.json"
        config = RunConfig(model=DEMO, moe_slots=slots, experts=asked_of_experts(stats=path))
        engine = load_engine(config)
        engine.close()
        assert engine.exit_notes == ("no expert stats were written: nothing was computed",)
        assert not path.exists()
