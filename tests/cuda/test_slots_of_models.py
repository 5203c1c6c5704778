"""Models of which a card has only some experts: the same tokens, whatever is missed and how."""

from pathlib import Path

import numpy as np
import pytest
from conftest import Load

from sharpi.config import ExpertConfig
from sharpi.engine.engine import Engine
from sharpi.engine.parts import card_tier_of
from sharpi.engine.sequence import Sequence

pytestmark = pytest.mark.native
DEMO = Path(__file__).parents[2] / "models" / "demo" / "stories-moe.gguf"
REFERENCES = Path(__file__).parents[1] / "references"


def greedy(engine: Engine, prompt: list[int], count: int) -> list[int]:
    """Tokens by the largest logit, the prompt as one batch first."""
    sequence = Sequence(engine.runner)
    logits = sequence.extend(prompt)
    tokens = [int(np.argmax(logits))]
    while len(tokens) < count:
        tokens.append(sequence.extend_largest(tokens[-1]))
    sequence.truncate(0)
    return tokens


@pytest.mark.parametrize("miss", ["load", "stream", "cpu"])
@pytest.mark.parametrize("slots", [2, 8])
def test_the_demo_says_the_same(slots: int, miss: str, load: Load) -> None:
    prompt = [1, 200, 31, 77, 402, 9]
    wanted = greedy(load(DEMO, context_size=64), prompt, 8)
    experts = ExpertConfig(miss=miss)
    engine = load(DEMO, context_size=64, moe_slots=slots, experts=experts)
    assert greedy(engine, prompt, 8) == wanted
    tier = card_tier_of(engine.runner.parts)
    assert tier is not None
    stats = tier.stats("demo", 0)
    print(stats.notes, stats.hit_count)
    assert 0 < stats.hit_count.hits < stats.hit_count.accesses
