"""The experts of drafts stay in slots as those of single tokens do."""

from collections.abc import Callable

import numpy as np
import pytest
from oracle import with_oracle
from scheduled import asked

from sharpi.engine.engine import Engine
from sharpi.settings import ExpertConfig
from sharpi.settings import SpeculationConfig as Speculation

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
PROMPT = np.random.default_rng(7).integers(3, 280, 20).tolist()
FIXED = Speculation(kinds=("draft",), max_drafts=4)


def answer(engine: Engine) -> list[int]:
    """Returns the greedy text after the prompt."""
    generation = engine.session().generate(PROMPT, asked(80))
    list(generation)
    return generation.ids


def num_missing(engine: Engine) -> int:
    """Returns how many experts were not in memory when steps needed them."""
    assert engine._tier is not None
    return sum(each.total.accesses - each.total.hits for each in engine._tier.layer_stats())


@pytest.mark.slow
@pytest.mark.parametrize("slots", [6, 8, 12])
def test_right_drafts_miss_no_more_than_single_tokens(
    slots: int, load: Load, quick_demo: object
) -> None:
    """Once, every step of drafts read its experts anew, as prompts do."""
    experts = ExpertConfig(policy="slru", prefetch=False)
    options = {"moe_slots": slots, "context_size": 256, "experts": experts}
    single = load(quick_demo, **options)
    plain = answer(single)
    engine = load(quick_demo, speculation=FIXED, **options)
    with_oracle(engine, PROMPT + plain, share_right=1.0)
    assert answer(engine) == plain
    assert engine.speculator.statistics.tokens_per_step > 2
    assert num_missing(engine) < 1.05 * num_missing(single)
