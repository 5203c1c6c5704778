"""Views of the experts of a running model: residents, and uses since the last view."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from streamed_models import (
    NUM_EXPERTS,
    NUM_LAYERS,
    NUM_USED,
    decode,
    write_mixed_model,
)

from sharpi.engine.engine import Engine

pytestmark = pytest.mark.native
Load = Callable[..., Engine]


def test_streamed_experts_are_where_the_policy_has_them(load: Load, quick_demo: Path) -> None:
    engine = load(quick_demo, moe_slots=4, context_size=256)
    before = engine.expert_view()
    decode(engine)
    after = engine.expert_view()
    assert before is not None
    assert after is not None
    assert after.layers == tuple(range(NUM_LAYERS))
    assert after.slots == (4,) * NUM_LAYERS
    assert after.resident.shape == after.uses.shape == (NUM_LAYERS, NUM_EXPERTS)
    assert not before.uses.any()
    assert (after.resident.sum(axis=1) == 4).all()
    assert after.counts is not None
    for layer, counts in enumerate(after.counts):
        assert counts.hits + counts.late + counts.loads == counts.accesses > 0
        assert after.uses[layer].sum() >= counts.accesses


def test_mapped_experts_are_counted_after_a_look(load: Load, quick_demo: Path) -> None:
    engine = load(quick_demo, context_size=256)
    decode(engine, max_tokens=4)
    first = engine.expert_view()
    decode(engine, max_tokens=4)
    second = engine.expert_view()
    assert first is not None
    assert second is not None
    assert first.counts is None
    assert first.resident.all()
    assert not first.uses.any(), "nobody looked on, and nothing was recorded"
    assert (second.uses.sum(axis=1) >= 4 * NUM_USED).all()
    assert engine.expert_stats() is None, "a look is no record"


def test_a_view_stays_as_it_was(load: Load, quick_demo: Path) -> None:
    engine = load(quick_demo, context_size=256)
    view = engine.expert_view()
    assert view is not None
    decode(engine, max_tokens=4)
    assert not view.uses.any()


def test_layers_without_experts_are_left_out(load: Load, tmp_path: Path) -> None:
    engine = load(write_mixed_model(tmp_path / "mixed.gguf"), moe_slots=2, context_size=128)
    decode(engine, [1, 2, 3], max_tokens=4)
    view = engine.expert_view()
    assert view is not None
    assert view.counts is not None
    assert 0 not in view.layers
    assert np.shape(view.uses)[0] == len(view.layers) == len(view.slots) == len(view.counts)


def test_a_dense_model_has_no_view(load: Load) -> None:
    assert load("qwen3").expert_view() is None
