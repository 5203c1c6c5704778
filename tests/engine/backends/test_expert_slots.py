"""Slots never change output: tokens and logits equal those of the mapped file, in every mode."""

from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamed_models import (
    DEMO,
    NUM_EXPERTS,
    NUM_LAYERS,
    REFERENCES,
    asked,
    decode,
    write_mixed_model,
)

from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.sequence import Sequence
from sharpi.experts.policy_settings import POLICIES, PREDICTOR_NAMES
from sharpi.experts.stats.stats_file import contradiction
from sharpi.settings import RunConfig

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
SLOTS = (1, 2, NUM_EXPERTS // 2, NUM_EXPERTS)
IDS = np.random.default_rng(2).integers(3, 1000, 90).astype(np.int32)
MOE_CASES = sorted(
    path.stem for path in REFERENCES.glob("*.gguf") if b"_exps.weight" in path.read_bytes()
)
# Neighbours are of one family mostly, so each family is computed in both precisions.
IN_TURN = list(zip(MOE_CASES, cycle(["f32", "int8"]), strict=False))


@pytest.fixture(scope="module")
def mapped_ids() -> Iterator[list[int]]:
    """Yields the demo model's answer when all of it is mapped."""
    with load_engine(RunConfig(DEMO, context_size=256)) as engine:
        assert not engine.streams_experts
        yield decode(engine)


@pytest.fixture
def streamed(load: Load, quick_demo: Path) -> Load:
    """Returns the demo model with slots, in a file that is read at once."""

    def load_one(slots: int, **options: Any) -> Engine:
        engine = load(quick_demo, moe_slots=slots, **({"context_size": 256} | options))
        assert engine.streams_experts
        return engine

    return load_one


@pytest.mark.parametrize("slots", SLOTS)
def test_every_number_of_slots(slots: int, load: Load, mapped_ids: list[int]) -> None:
    engine = load(DEMO, moe_slots=slots, context_size=256)
    assert decode(engine) == mapped_ids
    assert any("take turns" in note for note in engine.notes) == (slots == 1)


@pytest.mark.slow
@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy(policy: str, prefetch: bool, streamed: Load, mapped_ids: list[int]) -> None:
    engine = streamed(3, experts=asked(policy=policy, prefetch=prefetch))
    assert decode(engine) == mapped_ids
    stats = engine.expert_stats()
    assert stats is not None
    assert (stats.prediction is not None) == prefetch
    assert contradiction(stats) is None
    assert stats.fills == (3 * NUM_LAYERS if policy == "static" else 0)


@pytest.mark.slow
@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize("predictor", [*PREDICTOR_NAMES, "learned"])
def test_every_predictor(predictor: str, slots: int, streamed: Load, mapped_ids: list[int]) -> None:
    engine = streamed(slots, experts=asked(predictor=predictor))
    assert decode(engine) == mapped_ids
    stats = engine.expert_stats()
    assert stats is not None
    assert stats.prediction is not None
    assert stats.prediction.predictor == predictor


@pytest.mark.slow
def test_prediction_is_off_where_its_guesses_are_not_used(streamed: Load) -> None:
    """The last token's experts are seldom those of the next one that are missing."""
    engine = streamed(4, experts=asked(predictor="last-token"), context_size=512)
    decode(engine, max_tokens=400)
    stats = engine.expert_stats()
    assert stats is not None
    assert stats.prediction is not None
    assert stats.prediction.steps == 399
    counts = [layer.decode for layer in stats.layers]
    unused = sum(each.prefetched - each.prefetch_used for each in counts)
    misses = sum(each.loads + each.late for each in counts)
    assert 0 < unused <= 2 * NUM_LAYERS + 0.1 * misses
    assert not stats.prediction.is_on


def test_what_the_learned_policy_guesses_is_counted(streamed: Load) -> None:
    engine = streamed(4, experts=asked(predictor="learned", policy="learned-prefetch"))
    decode(engine)
    stats = engine.expert_stats()
    assert stats is not None
    assert stats.prediction is not None
    assert 0 < (stats.prediction.precision or 0) <= 1
    assert 0 < (stats.prediction.recall or 0) < 1


@pytest.mark.parametrize(
    "fields",
    [
        {"resident": "first-n"},
        {"resident": "ids", "resident_ids": "3,1,8-10"},
        {"resident": "frequency", "warmup_tokens": 8},
        {"warm_pin": 2, "warm_pin_after": 20, "policy": "slru"},
        {"load_budget": 1.0, "policy": "learned-prefetch"},
    ],
    ids=str,
)
def test_every_kind_of_residence(
    fields: dict[str, Any], streamed: Load, mapped_ids: list[int]
) -> None:
    assert decode(streamed(4, experts=asked(**fields))) == mapped_ids


@pytest.mark.slow
@pytest.mark.parametrize(("slots", "threads"), [(1, 3), (2, 1), (NUM_EXPERTS, 3)])
def test_a_prompt_of_many_batches(slots: int, threads: int, streamed: Load, load: Load) -> None:
    options = {"batch_size": 7, "num_threads": threads, "context_size": 128}
    mapped = load(DEMO, **options).logits(IDS)
    assert np.array_equal(streamed(slots, **options).logits(IDS), mapped)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["f32", "int8", "int16"])
def test_logits_of_batches_and_of_single_tokens(precision: str, streamed: Load, load: Load) -> None:
    mapped = load(DEMO, precision=precision, context_size=128).logits(IDS)
    engine = streamed(2, precision=precision, context_size=128)
    assert np.array_equal(engine.logits(IDS), mapped)
    sequence = Sequence(engine.runner)
    steps = np.stack([sequence.extend([i]).copy() for i in IDS.tolist()])
    assert np.array_equal(steps, mapped)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "precision"), IN_TURN)
def test_every_architecture(case: str, precision: str, load: Load) -> None:
    with np.load(REFERENCES / f"{case}.npz") as arrays:
        ids = arrays["tokens"].astype(np.int32)
    assert_same_as_mapped(load, REFERENCES / f"{case}.gguf", ids, precision)


@pytest.mark.parametrize("precision", ["f32", "int8"])
def test_a_dense_first_layer_and_biases_of_experts(
    precision: str, load: Load, tmp_path: Path
) -> None:
    model = write_mixed_model(tmp_path / "mixed.gguf")
    plain = load("qwen3moe", precision=precision).logits(IDS % 40)
    mixed = assert_same_as_mapped(load, model, IDS % 40, precision)
    assert not np.allclose(mixed, plain)


def assert_same_as_mapped(load: Load, model: Path, ids: np.ndarray, precision: str) -> np.ndarray:
    mapped = np.array(load(model, precision=precision).logits(ids))
    for slots in (1, 3):
        engine = load(model, precision=precision, moe_slots=slots, batch_size=11)
        assert engine.streams_experts
        assert np.array_equal(engine.logits(ids), mapped)
        sequence = Sequence(engine.runner)
        steps = np.stack([sequence.extend([i]).copy() for i in ids[:12].tolist()])
        assert np.array_equal(steps, mapped[:12])
    return mapped


def test_sessions_take_turns(streamed: Load, load: Load) -> None:
    prompts = IDS[:20].tolist(), IDS[20:50].tolist()
    mapped = load(DEMO, context_size=256)
    wanted = [decode(mapped, prompt, 8) for prompt in prompts]
    engine = streamed(2)
    for _ in range(2):
        assert [decode(engine, prompt, 8) for prompt in prompts] == wanted
