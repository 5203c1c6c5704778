"""Prompts whose batches take turns at every layer have the same bits as one batch after another."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_device import CpuDevice
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sharpi.device.launch import Span
from sharpi.engine.backends.parts import gpu_tier_of
from sharpi.engine.engine import Engine
from sharpi.engine.sequence import Sequence
from sharpi.ops.cpu.recorder_tape import Buffer
from sharpi.ops.cuda.expert_slots.prefill_expert_access import Chunk, ExpertStream
from sharpi.ops.cuda.recorded import Copy, PassCounts
from sharpi.ops.cuda.recording import Recording
from sharpi.ops.cuda.replay.prompt_program import PromptStash, StashSizes
from sharpi.settings import ExpertConfig
from sharpi.tiers import gpu as gpu_planning
from sharpi.tiers.expert_memory import NO_STASH, GpuStaging, prompt_stash

Load = Callable[..., Engine]

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[2] / "references" / "data"
KINDS = ["qwen3moe", "gpt-oss", "deepseek3", "qwen3next", "gemma4-moe", "granitehybrid", "lfm2moe"]
USUAL: dict[str, Any] = {"context_size": 64, "batch_size": 16, "moe_slots": 2}
FEW, ALL = 1, 64  # experts of a buffer


def tokens_of(case: str, count: int) -> list[int]:
    with np.load(REFERENCES / f"{case}.npz") as arrays:
        ids: list[int] = arrays["tokens"].tolist()
    return (ids * count)[:count]


def answers(engine: Engine, ids: list[int]) -> np.ndarray:
    """Returns the logits after a prompt, and after two more tokens, which read its KV cache."""
    sequence = Sequence(engine.runner)
    logits = [sequence.extend(part).copy() for part in (ids[:-2], ids[-2:-1], ids[-1:])]
    sequence.truncate(0)
    return np.stack(logits)


def passes_of(engine: Engine) -> PassCounts:
    tier = gpu_tier_of(engine.runner.parts)
    assert tier is not None
    return tier.passes


class PromptLoader:
    """Loads a model whose prompts pass batch after batch, or layer by layer."""

    def __init__(self, load: Load, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
        self._load, self._patch, self._model = load, monkeypatch, REFERENCES / f"{case}.gguf"

    def by_batch(self, **options: Any) -> Engine:
        with self._patch.context() as patch:
            patch.setattr(gpu_planning, "prompt_stash", lambda *_: NO_STASH)
            return self.by_layer(ALL, **options)

    def by_layer(self, streamed: int, **options: Any) -> Engine:
        staging = GpuStaging(num_missed=4, num_early=2, num_streamed=streamed)
        with self._patch.context() as patch:
            patch.setattr(gpu_planning, "gpu_staging", lambda *_: staging)
            return self._load(self._model, **(USUAL | options))


@pytest.mark.parametrize("case", KINDS)
def test_every_kind_of_layer(case: str, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    loader, ids = PromptLoader(load, monkeypatch, case), tokens_of(case, 34)
    expected = answers(loader.by_batch(), ids)
    engine = loader.by_layer(FEW)
    assert np.array_equal(answers(engine, ids), expected)
    assert passes_of(engine).by_layer == 1


@pytest.mark.parametrize(
    ("case", "batch_size", "count"),
    [("qwen3next", 5, 23), ("granitehybrid", 8, 24), ("qwen3moe", 33, 90)],
)  # 5: one token is left for the last; 33: matrix products are in 16 bits
def test_every_size_of_batches(
    case: str, batch_size: int, count: int, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader, ids = PromptLoader(load, monkeypatch, case), tokens_of(case, count)
    options = {"batch_size": batch_size, "context_size": 96, "experts": ExpertConfig(miss="bus")}
    expected = answers(loader.by_batch(**options), ids)
    for streamed in (3, ALL):
        engine = loader.by_layer(streamed, **options)
        assert np.array_equal(answers(engine, ids), expected)
        assert passes_of(engine).by_layer == 1


@pytest.mark.parametrize("case", ["qwen3moe", "gemma4-moe"])
def test_layers_on_both_processors(case: str, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    loader, ids = PromptLoader(load, monkeypatch, case), tokens_of(case, 43)
    expected = answers(loader.by_batch(gpu_layers=1), ids)
    engine = loader.by_layer(FEW, gpu_layers=1)
    assert len(engine.runner.parts) == 2
    assert np.array_equal(answers(engine, ids), expected)


def test_layers_that_have_all_experts_between_others(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such layers run the batches one after the other; the routes are stored with the prompt's."""
    monkeypatch.setattr(
        gpu_planning,
        "grant",
        lambda wants, _: {i: want.most if i == 1 else 2 for i, want in wants.items()},
    )
    loader, ids = PromptLoader(load, monkeypatch, "glm4moe"), tokens_of("glm4moe", 43)
    expected = answers(loader.by_batch(moe_slots=None), ids)
    for streamed in (FEW, ALL):
        engine = loader.by_layer(streamed, moe_slots=None)
        assert engine.plan is not None
        assert len({layer.vram_slots for layer in engine.plan.layers if layer.num_experts}) == 2
        assert np.array_equal(answers(engine, ids), expected)
        assert passes_of(engine).by_layer == 1


def test_an_expert_crosses_the_bus_once(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    loader, ids = PromptLoader(load, monkeypatch, "gpt-oss"), tokens_of("gpt-oss", 48)
    brought: list[tuple[int, int]] = []
    copies = ExpertStream._copies

    def counted(stream: ExpertStream, chunk: Chunk, tensor: int) -> Iterator[Copy]:
        if tensor == 0:
            brought.extend((chunk.layer, expert) for expert in chunk.missing)
        return copies(stream, chunk, tensor)

    monkeypatch.setattr(ExpertStream, "_copies", counted)
    for streamed in (FEW, 3, ALL):
        brought.clear()
        Sequence(loader.by_layer(streamed).runner).extend(ids)
        assert brought
        assert len(brought) == len(set(brought))
    brought.clear()
    Sequence(loader.by_batch().runner).extend(ids)
    assert len(brought) == 2 * len(set(brought))  # the first batch fills half of the slots


def test_a_prompt_longer_than_the_stash_passes_in_parts(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader, ids = PromptLoader(load, monkeypatch, "qwen3next"), tokens_of("qwen3next", 45)
    expected = answers(loader.by_batch(batch_size=8), ids)
    monkeypatch.setattr(
        gpu_planning,
        "prompt_stash",
        lambda *request: replace(prompt_stash(*request), max_tokens=16),
    )
    engine = loader.by_layer(FEW, batch_size=8)
    assert engine.runner.prompt_batch == 16
    assert np.array_equal(answers(engine, ids), expected)
    assert passes_of(engine).by_layer == 3


def paged(gpu: float, cpu: float) -> ExpertConfig:
    return ExpertConfig(
        paged_stash=True, stash_page_tokens=4, stash_gpu_factor=gpu, stash_cpu_factor=cpu
    )


def test_pages_are_in_ram_where_the_gpu_has_no_more(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader, ids = PromptLoader(load, monkeypatch, "gpt-oss"), tokens_of("gpt-oss", 43)
    expected = answers(loader.by_batch(), ids)
    for streamed, gpu, cpu, pages in ((ALL, 1.1, 0, 0), (FEW, 0.3, 0.9, 6), (ALL, 0, 1, 11)):
        engine = loader.by_layer(streamed, experts=paged(gpu, cpu))
        assert np.array_equal(answers(engine, ids), expected)
        assert passes_of(engine) == PassCounts(by_layer=1, spilled_pages=pages)


def test_a_prompt_that_has_no_pages_passes_batch_after_batch(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader, ids = PromptLoader(load, monkeypatch, "gpt-oss"), tokens_of("gpt-oss", 43)
    expected, other = answers(loader.by_batch(), ids), loader.by_layer(ALL)
    engine = loader.by_layer(ALL, experts=paged(0.3, 0.2))
    assert np.array_equal(answers(engine, ids), expected)
    assert passes_of(engine) == PassCounts(stash_overflows=1)
    assert "prompts too long for the stash: 1" in passes_of(engine).notes
    for each in (engine, other):
        Sequence(each.runner).extend(ids[:41])
    for by_batch, by_layer in zip(engine.runner.routes, other.runner.routes, strict=True):
        count = min(41, len(by_batch), len(by_layer))
        assert np.array_equal(by_batch[:count], by_layer[:count])


def test_what_is_not_kept_would_be_seen(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail: if one of the buffers is not kept, bits differ."""
    loader, ids = PromptLoader(load, monkeypatch, "qwen3moe"), tokens_of("qwen3moe", 43)
    expected = answers(loader.by_batch(), ids)
    live = Recording._live

    def forgetful(recording: Recording, cut: int) -> list[Buffer]:
        return live(recording, cut)[:-1]

    monkeypatch.setattr(Recording, "_live", forgetful)
    assert not np.array_equal(answers(loader.by_layer(ALL), ids), expected)


ARRAYS = (12, 4)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 5), st.integers(0, 4), st.integers(1, 4), st.integers(1, 9))
def test_rows_come_back(page: int, on_gpu: int, in_ram: int, batch: int) -> None:
    device = CpuDevice(check=False)
    tokens = page * (on_gpu + in_ram)
    sizes = StashSizes(tokens, page, on_gpu, in_ram)
    stash = PromptStash(device, ARRAYS, sizes)
    rng, written = np.random.default_rng(0), []
    for first in range(0, tokens, batch):
        count = min(batch, tokens - first)
        for array, row_bytes in ((0, 8), (1, 4)):
            data = rng.integers(0, 256, count * row_bytes, np.uint8)
            rows = Span(device.allocate(data.nbytes), 0, data.nbytes)
            device.upload(rows, data)
            for part, stashed in stash.row_pairs(array, first, rows, row_bytes):
                device.copy(stashed, part)
            written.append((array, first, row_bytes, data))
    for array, first, row_bytes, data in written:
        rows, found = Span(device.allocate(data.nbytes), 0, data.nbytes), np.empty_like(data)
        for part, stashed in stash.row_pairs(array, first, rows, row_bytes):
            device.copy(part, stashed)
        device.download(rows, found)
        assert np.array_equal(found, data)


def test_pages_are_counted() -> None:
    sizes = StashSizes(40, 4, 3, 5)
    assert sizes.holds(32)
    assert not sizes.holds(33)
    assert [sizes.spilled_pages(n) for n in (12, 13, 32)] == [0, 1, 5]
