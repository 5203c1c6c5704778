"""Prompts whose batches take turns at every layer: no bit differs from batch after batch."""

from pathlib import Path

import numpy as np
import pytest
from conftest import Load

from sharpi.engine.engine import Engine
from sharpi.engine.parts import card_tier_of
from sharpi.engine.sequence import Sequence
from sharpi.tiers import card as card_planning
from sharpi.tiers.prompt_stash import NO_STASH
from sharpi.tiers.staging import CardStaging

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[1] / "references"
KINDS = ["qwen3moe", "gpt-oss", "deepseek3", "qwen3next", "gemma4-moe", "granitehybrid", "lfm2moe"]


def tokens_of(case: str, count: int) -> list[int]:
    with np.load(REFERENCES / f"{case}.npz") as arrays:
        ids: list[int] = arrays["tokens"].tolist()
    return (ids * count)[:count]


def answers(engine: Engine, ids: list[int]) -> np.ndarray:
    """Logits after a prompt, and after two tokens more: of what the prompt left behind."""
    sequence = Sequence(engine.runner)
    logits = [sequence.extend(part).copy() for part in (ids[:-2], ids[-2:-1], ids[-1:])]
    sequence.truncate(0)
    return np.stack(logits)


def num_by_layer(engine: Engine) -> int:
    tier = card_tier_of(engine.runner.parts)
    assert tier is not None
    return tier.passes.by_layer


@pytest.fixture
def batch_after_batch(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(card_planning, "prompt_stash", lambda *_: NO_STASH)
    return monkeypatch


def both_ways(
    load: Load, monkeypatch: pytest.MonkeyPatch, ids: list[int], streamed: int, path: Path, **options
) -> tuple[np.ndarray, np.ndarray, Engine]:
    """Batch after batch, then layer by layer; `streamed`: experts of a buffer."""
    staging = CardStaging(num_missed=4, num_early=2, num_streamed=streamed)
    monkeypatch.setattr(card_planning, "card_staging", lambda *_: staging)
    with monkeypatch.context() as patch:
        patch.setattr(card_planning, "prompt_stash", lambda *_: NO_STASH)
        wanted = load(path, **options)
        expected = answers(wanted, ids)
        assert num_by_layer(wanted) == 0
    engine = load(path, **options)
    return expected, answers(engine, ids), engine


@pytest.mark.parametrize("streamed", [1, 64])
@pytest.mark.parametrize("case", KINDS)
def test_bits(case: str, streamed: int, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = tokens_of(case, 43)
    expected, found, engine = both_ways(
        load, monkeypatch, ids, streamed, REFERENCES / f"{case}.gguf",
        context_size=64, batch_size=16, moe_slots=2,
    )  # fmt: skip
    assert np.array_equal(expected, found)
    assert num_by_layer(engine) == 1
