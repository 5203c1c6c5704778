"""Several answers over experts read from disk: faults of the file, statistics, traces."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scheduled import alone, asked, assert_nothing_is_left, finish, submit
from streamed_models import DEMO, NUM_LAYERS, NUM_USED
from streamed_models import asked as asked_of_experts

from sharpi.engine.engine import Engine
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.errors import ModelFileError
from sharpi.experts.stats.stats_file import contradiction, read_stats
from sharpi.experts.trace.trace import read_trace

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
IDS = np.random.default_rng(4).integers(3, 1000, 400).tolist()
PROMPTS = [IDS[:40], IDS[100:107], IDS[200:330]]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["slru", "lru"])
def test_slots_change_hands_while_several_decode(policy: str, load: Load) -> None:
    options = {"context_size": 256, "num_parallel": 3, "experts": asked_of_experts(policy=policy)}
    whole, few = load(DEMO, **options), load(DEMO, moe_slots=4, **options)
    expected = [alone(whole, prompt, asked(40))[1] for prompt in PROMPTS]
    scheduler = Scheduler(few, 3)
    heard = [submit(scheduler, prompt, asked(40)) for prompt in PROMPTS]
    while not all(each.deltas for each in heard):
        scheduler.step()
    filled = few.expert_view()
    finish(scheduler)
    assert [each.ids for each in heard] == expected
    stats, view = few.expert_stats(), few.expert_view()
    assert stats is not None
    assert stats.num_tokens == 3 * 39
    assert filled is not None
    assert view is not None
    assert (view.resident != filled.resident).any()


def test_experts_that_cannot_be_read_end_answers_and_not_the_scheduler(
    load: Load, quick_folder: Path
) -> None:
    model = quick_folder / "harmed-by-several.gguf"
    model.write_bytes(DEMO.read_bytes())
    engine = load(model, moe_slots=2, context_size=256, num_parallel=3)
    expected = [alone(engine, prompt, asked(30))[1] for prompt in PROMPTS]
    scheduler = Scheduler(engine, 3)
    heard = [submit(scheduler, prompt, asked(30)) for prompt in PROMPTS]
    while len(heard[0].ids) < 5:
        scheduler.step()
    data, times = model.read_bytes(), model.stat()
    os.truncate(model, len(data) // 2)
    finish(scheduler)
    for each, ids in zip(heard, expected, strict=True):
        assert each.finish_info.reason == "error"
        assert isinstance(each.finish_info.error, ModelFileError)
        assert each.ids == ids[: len(each.ids)]
    with model.open("r+b") as file:
        file.write(data)
    os.utime(model, ns=(times.st_atime_ns, times.st_mtime_ns))
    again = [submit(scheduler, prompt, asked(30)) for prompt in PROMPTS]
    finish(scheduler)
    assert [each.ids for each in again] == expected
    assert_nothing_is_left(scheduler, engine)


def test_every_sequence_is_a_generation_of_the_trace(load: Load, tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("trace", "stats")}
    records = asked_of_experts(**files)
    with load("qwen3moe", num_parallel=3, context_size=256, experts=records) as engine:
        scheduler = Scheduler(engine, 3)
        heard = [submit(scheduler, [i % 280 for i in p], asked(9)) for p in PROMPTS]
        finish(scheduler)
    trace = read_trace(files["trace"])
    assert trace.prompts is not None
    assert trace.prompts.lengths.tolist() == [len(prompt) for prompt in PROMPTS]
    assert trace.prompts.positions.tolist() == [0, 0, 0]
    assert trace.lengths.tolist() == [8, 8, 8]
    with np.load(files["trace"]) as arrays:
        assert arrays["token_ids"].tolist() == [i for each in heard for i in each.ids[:-1]]
        probabilities = arrays["probabilities"].astype(np.float32)
    used = trace.routes.shape[-1]
    np.testing.assert_array_equal(np.argsort(-probabilities, axis=2)[:, :, :used], trace.routes)
    assert read_stats(files["stats"]).num_tokens == 24


def test_uses_are_counted_once_for_each_token(load: Load, tmp_path: Path) -> None:
    asked_for = asked_of_experts(stats=tmp_path / "s.json")
    engine = load(DEMO, context_size=256, num_parallel=3, experts=asked_for)
    scheduler = Scheduler(engine, 3)
    for prompt in PROMPTS:
        submit(scheduler, prompt, asked(10))
    finish(scheduler)
    stats = engine.expert_stats()
    assert stats is not None
    num_tokens = sum(map(len, PROMPTS)) + 3 * 9
    uses = [sum(layer.uses) for layer in stats.layers]
    assert uses[:-1] == [num_tokens * NUM_USED] * (NUM_LAYERS - 1)
    assert uses[-1] == 30 * NUM_USED  # of a prompt only the last token's


@pytest.mark.slow
@pytest.mark.parametrize("predictor", ["router", "last-layer", "last-token", "frequency"])
def test_experts_are_prefetched_for_several_answers(predictor: str, load: Load) -> None:
    options = {"context_size": 256, "num_parallel": 3}
    whole = load(DEMO, **options)
    expected = [alone(whole, prompt, asked(40))[1] for prompt in PROMPTS]
    experts = asked_of_experts(predictor=predictor, policy="slru")
    few = load(DEMO, moe_slots=4, experts=experts, **options)
    scheduler = Scheduler(few, 3)
    heard = [submit(scheduler, prompt, asked(40)) for prompt in PROMPTS]
    finish(scheduler)
    assert [each.ids for each in heard] == expected
    stats = few.expert_stats()
    assert stats is not None
    assert stats.prediction is not None
    assert 0 < stats.prediction.right < stats.prediction.guessed
    assert stats.prediction.steps < 60, "most steps decoded three tokens"
    assert stats.prediction.guessed > stats.prediction.predicted_steps * NUM_USED
    assert stats.decode.prefetch_used > 0
    assert contradiction(stats) is None
