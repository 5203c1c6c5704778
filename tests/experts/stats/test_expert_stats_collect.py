"""The stats of a real store."""

import random
from pathlib import Path

import numpy as np
import pytest
from expert_files import EXPERTS, MOE_LAYERS, ExpertFiles, K, open_store

from sharpi.experts.native.feed import FeedCounts
from sharpi.experts.stats.stats import ExpertStats
from sharpi.experts.stats.stats_collect import RunFacts, TierFacts, collect_stats
from sharpi.experts.stats.stats_file import contradiction

pytestmark = pytest.mark.native
TOKENS = 50


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ExpertFiles:
    return ExpertFiles(tmp_path_factory.mktemp("files"))


def run(files: ExpertFiles, facts: TierFacts, warm_pin: int = 0) -> ExpertStats:
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
    stats = collect_stats(store, RunFacts("a.gguf", 0, TOKENS), facts)
    assert contradiction(stats) is None
    store.close()
    store.policy.close()
    return stats


def test_what_was_done_is_what_is_told(files: ExpertFiles) -> None:
    stats = run(files, TierFacts(notes=("n",)))
    assert (stats.model, stats.policy, stats.num_experts) == ("a.gguf", "slru", EXPERTS)
    assert [layer.layer for layer in stats.layers] == MOE_LAYERS
    first, *_, last = stats.layers
    assert first.decode.accesses == sum(first.uses) == TOKENS * K
    assert first.expert_bytes == files.layers[0].expert_bytes
    assert first.prompt.accesses == 0
    assert 0 < first.decode.loads < TOKENS * K
    assert (last.total.accesses, last.uses) == (0, (0,) * EXPERTS)
    assert (stats.prediction, stats.before_pin, stats.notes) == (None, None, ("n",))


def test_pins_and_predictions(files: ExpertFiles) -> None:
    predictions = FeedCounts(40, 100, 30, 50, 20, 1)
    stats = run(files, TierFacts("both", True, predictions), warm_pin=2)
    assert [len(layer.pinned) for layer in stats.layers[:-1]] == [2] * (len(MOE_LAYERS) - 1)
    assert stats.before_pin is not None
    assert stats.after_pin is not None
    assert stats.before_pin.accesses + stats.after_pin.accesses == stats.total.hit_count.accesses
    assert stats.before_pin.hits + stats.after_pin.hits == stats.total.hit_count.hits
    assert 0 < stats.before_pin.hits < stats.before_pin.accesses
    found = stats.prediction
    assert found is not None
    assert (found.recall, found.precision) == (0.3, 0.75)
    assert stats.total.prefetch_used <= stats.total.prefetched <= 2 * TOKENS
    assert found.is_on
    assert (found.steps, found.predicted_steps) == (50, 20)


def test_a_failed_read_is_noted(files: ExpertFiles, tmp_path: Path) -> None:
    shrinking = ExpertFiles(tmp_path)
    store = open_store(shrinking)
    shrinking.paths[0].write_bytes(b"")
    store.prefetch(0, [1])
    while not store.totals().failed_prefetches:
        pass
    stats = collect_stats(store, RunFacts("a.gguf"), TierFacts())
    assert stats.failed_reads
    assert stats.notes[0].startswith(f"a read failed: {shrinking.paths[0]}")
    store.close()
    store.policy.close()
