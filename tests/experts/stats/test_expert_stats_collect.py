"""The stats of a real store."""

import random
from pathlib import Path

import numpy as np
import pytest
from expert_files import EXPERTS, MOE_LAYERS, ExpertFiles, K, open_store

from sharpi.experts.native.predictor_native import PredictionCounts
from sharpi.experts.stats.stats import ExpertStats
from sharpi.experts.stats.stats_collect import RunFacts, collect_stats

pytestmark = pytest.mark.native
TOKENS = 50


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ExpertFiles:
    return ExpertFiles(tmp_path_factory.mktemp("files"))


def run(files: ExpertFiles, facts: RunFacts, warm_pin: int = 0) -> ExpertStats:
    store = open_store(files, slots=4, warm_pin=warm_pin, warm_pin_after=60)
    generator = random.Random(3)
    for _ in range(TOKENS):
        for layer in MOE_LAYERS[:-1]:
            route = generator.sample(range(EXPERTS), K)
            store.prefetch(layer, route[:1])
            store.acquire(layer, np.array([route]))
            for expert in route:
                store.wait(layer, expert)
            store.release(layer)
        store.end_token()
    stats = collect_stats(store, facts)
    store.close()
    store.policy.close()
    return stats


def test_what_was_done_is_what_is_told(files: ExpertFiles) -> None:
    stats = run(files, RunFacts("a.gguf", TOKENS, notes=("n",)))
    assert (stats.model, stats.policy, stats.num_experts) == ("a.gguf", "slru", EXPERTS)
    assert [layer.layer for layer in stats.layers] == MOE_LAYERS
    first, *_, last = stats.layers
    assert first.accesses == sum(first.uses) == TOKENS * K
    assert first.hits + first.late + first.loads == first.accesses
    assert first.bytes_read >= first.loads * files.layers[0].expert_bytes
    assert (last.accesses, last.uses) == (0, (0,) * EXPERTS)
    assert (stats.prediction, stats.before_pin, stats.notes) == (None, None, ("n",))


def test_pins_and_predictions(files: ExpertFiles) -> None:
    predictions = PredictionCounts(predicted=40, used=100, right=30)
    stats = run(files, RunFacts("a.gguf", TOKENS, "both", True, predictions), warm_pin=2)
    assert [len(layer.pinned) for layer in stats.layers[:-1]] == [2] * (len(MOE_LAYERS) - 1)
    assert stats.before_pin is not None
    assert stats.after_pin is not None
    assert stats.before_pin.accesses + stats.after_pin.accesses == stats.hit_count.accesses
    found = stats.prediction
    assert found is not None
    assert (found.recall, found.precision) == (0.3, 0.75)
    assert found.prefetch_used <= found.prefetched <= 2 * TOKENS
    assert found.is_on


def test_a_failed_read_is_noted(files: ExpertFiles, tmp_path: Path) -> None:
    shrinking = ExpertFiles(tmp_path)
    store = open_store(shrinking)
    shrinking.paths[0].write_bytes(b"")
    store.prefetch(0, [1])
    while not store.totals().failed_prefetches:
        pass
    stats = collect_stats(store, RunFacts("a.gguf", 0))
    assert stats.notes[0].startswith(f"a read failed: {shrinking.paths[0]}")
    store.close()
    store.policy.close()
