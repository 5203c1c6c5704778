"""Layers with windows on a GPU keep the pages of their window; the bits are those of all pages."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from sharpi.engine import settings
from sharpi.engine.backends.gpu.part import GpuPart
from sharpi.engine.backends.parts import gpu_tier_of
from sharpi.engine.engine import Engine
from sharpi.engine.kv.window_pages import gpu_windows_of
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS
from sharpi.ops.cuda.kv_cache import SPARE_FRAMES
from sharpi.settings import ExpertConfig, GenerationRequest, SamplingParams
from sharpi.tiers import gpu as gpu_planning
from sharpi.tiers.expert_memory import GpuStaging

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[2] / "references" / "data"  # windows of 8 positions
Load = Callable[..., Engine]
# A batch and twice a window fill one page, so windows have few pages, which are soon dropped.
BATCH = PAGE_POSITIONS - 2 * 8
OPTIONS: dict[str, Any] = {"context_size": 1024, "batch_size": BATCH, "num_parallel": 2}
REQUEST = GenerationRequest(max_tokens=4, ignore_end=True, sampling=SamplingParams(temperature=0))
ONE = {**OPTIONS, "num_parallel": 1}


def ids(count: int, seed: int = 1) -> list[int]:
    return np.random.default_rng(seed).integers(3, 280, count).tolist()


@pytest.fixture
def both(load: Load, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Engine, Engine]]:
    """Loads an engine with pages of windows alone, and one of which all layers keep everything."""

    def load_both(case: str, **options: Any) -> tuple[Engine, Engine]:
        model = REFERENCES / f"{case}.gguf"
        engine = load(model, **options)
        with monkeypatch.context() as patch:
            patch.setattr(settings, "window_pages", lambda *_: 0)
            return engine, load(model, **options)

    return load_both


def gpu_of(engine: Engine) -> GpuPart:
    part = engine.runner.parts[-1]
    assert isinstance(part, GpuPart)
    return part


def answer(engine: Engine, prompt: list[int]) -> tuple[list[int], int]:
    generation = engine.session().generate(prompt, REQUEST)
    list(generation)
    return generation.ids, generation.timings.num_cached_tokens


@pytest.mark.parametrize("case", ["gpt-oss", "llama4"])
def test_logits_and_memory_of_a_long_text(case: str, both: Callable[..., Any]) -> None:
    engine, whole = both(case, **ONE)
    text = np.array(ids(3 * BATCH + 34), np.int32)
    assert np.array_equal(engine.logits(text), whole.logits(text))
    part = gpu_of(engine)
    limit, frames = engine.runner.settings.window_pages, part.cache.frames
    assert frames is not None
    assert frames.num_frames == limit + SPARE_FRAMES < engine.runner.pages.size
    in_frames = [layer for layer in part.cache.layers if part.cache.in_frames(layer)]
    assert in_frames == list(gpu_windows_of(engine.model_config))
    for layer, pages in part.cache.layers.items():
        of_all = gpu_of(whole).cache.layers[layer].keys.num_bytes
        share = frames.num_frames / engine.runner.pages.size if layer in in_frames else 1
        assert pages.keys.num_bytes == share * of_all
    assert gpu_of(whole).cache.frames is None


def test_greedy_tokens_over_several_windows(both: Callable[..., Any]) -> None:
    engine, whole = both("gpt-oss", **ONE, kv_type="q8_0")
    prompt, request = ids(60), replace(REQUEST, max_tokens=75)  # up to the third page
    found = []
    for each in (engine, whole):
        generation = each.session().generate(prompt, request)
        list(generation)
        found.append(generation.ids)
    assert found[0] == found[1]


def test_requests_that_share_beginnings_are_as_alone(both: Callable[..., Any]) -> None:
    engine, whole = both("gpt-oss", **OPTIONS)
    start = ids(140)
    prompts = [start, [*start, *ids(60, 2)], start[:100], start]
    expected = []
    for each in prompts:
        expected.append(answer(whole, each)[0])
    scheduler = Scheduler(engine, 2)
    found: list[list[int]] = [[] for _ in prompts]
    for prompt, own in zip(prompts, found, strict=True):
        scheduler.submit(
            prompt,
            REQUEST,
            on_delta=lambda delta, own=own: own.extend(c.id for c in delta.tokens),  # type: ignore[misc]
            on_end=lambda _: None,
        )
    while scheduler.step():
        pass
    assert found == expected
    scheduler.cache.clear()
    assert len(engine.runner.windows._present) == 0
    frames = gpu_of(engine).cache.frames
    assert frames is not None
    assert not frames._frames
    assert len(frames._free) == frames.num_frames


@pytest.mark.parametrize(
    ("case", "layers", "lengths"),
    [("gpt-oss", 1, (460, 290)), ("gemma4-moe", None, (460,))],
)
def test_prompts_that_pass_layer_by_layer(
    case: str,
    layers: int | None,
    lengths: tuple[int, ...],
    both: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A step of many batches has room for the window of one batch at a time."""
    staging = GpuStaging(num_missed=4, num_early=2, num_streamed=2)
    monkeypatch.setattr(gpu_planning, "gpu_staging", lambda *_: staging)
    experts = ExpertConfig(miss="bus")
    options = {**ONE, "moe_slots": 2, "gpu_layers": layers, "experts": experts}
    engine, whole = both(case, **options)
    frames, text = gpu_of(engine).cache.frames, ids(700)
    assert frames is not None
    assert frames.num_frames < lengths[0] // PAGE_POSITIONS + 1
    for length in lengths:
        assert answer(engine, text[:length]) == answer(whole, text[:length])
    tier = gpu_tier_of(engine.runner.parts)
    assert tier is not None
    assert tier.passes.by_layer >= 1
    assert (
        len(frames._frames)
        <= len(engine.runner.windows._present)
        <= frames.num_frames - SPARE_FRAMES
    )


def test_a_prompt_cache_and_snapshots(load: Load, tmp_path: Path) -> None:
    options = {**ONE, "gpu_layers": 1}
    model = REFERENCES / "gpt-oss.gguf"
    prompt = ids(400)
    with load(model, **options, prompt_cache=tmp_path) as engine:
        first, _ = answer(engine, prompt)
    longer = [*prompt, *first, *ids(9, 4)]
    with load(model, **options) as engine:
        expected, _ = answer(engine, longer)
    with load(model, **options, prompt_cache=tmp_path) as engine:
        found, cached = answer(engine, longer)
        assert len(engine.runner.windows._present) <= engine.runner.settings.window_pages
    assert found == expected
    assert cached >= 400


def test_a_shifted_context(both: Callable[..., Any]) -> None:
    """A shift computes the kept tokens again, in window pages that were used before.

    The text has then used all of the 7 pages, and the half of it that is kept needs 4 again.
    """
    options = {**ONE, "context_size": 400, "context_shift": True}
    engine, whole = both("gpt-oss", **options)
    assert gpu_of(engine).cache.frames is not None
    assert engine.runner.pages.size == 7
    found = []
    for each in (engine, whole):
        generation = each.session().generate(ids(378), replace(REQUEST, max_tokens=32))
        list(generation)
        found.append(generation.ids)
    assert len(found[0]) == 32  # of which the first 22 fit in the context
    assert found[0] == found[1]
