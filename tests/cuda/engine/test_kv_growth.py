"""A KV cache that grows within a conversation, and the slots that are freed for it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_device import CpuDevice

from sharpi.device.launch import Memory
from sharpi.engine.backends.gpu.part import GpuPart
from sharpi.engine.backends.parts import gpu_tier_of
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.sequence import Sequence
from sharpi.errors import DeviceError
from sharpi.experts.stats.stats_collect import RunFacts
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS
from sharpi.ops.cuda.kv_cache import GpuKvCache
from sharpi.settings import ExpertConfig, RunConfig
from sharpi.tiers import expert_memory
from sharpi.tiers.gpu import RESERVE_BYTES
from sharpi.tiers.plan import Purpose, Tier

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[2] / "references" / "data"
PROMPT = list(range(5, 5 + PAGE_POSITIONS - 4))
CONTEXT, NUM_TOKENS = 4 * PAGE_POSITIONS, 9  # enough to begin another page
Load = Callable[..., Engine]


class CountedDevice(CpuDevice):
    """A device that records the least free memory."""

    def __init__(self, memory_bytes: int = 8 << 30) -> None:
        super().__init__(check=False, memory_bytes=memory_bytes)
        self.least_free = memory_bytes

    def allocate(self, num_bytes: int) -> Memory:
        memory = super().allocate(num_bytes)
        self.least_free = min(self.least_free, self.free_bytes)
        return memory


@pytest.fixture(autouse=True)
def small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expert_memory, "LEAST_PAGES", 1)


@pytest.fixture
def load() -> Iterator[Load]:
    engines: list[Engine] = []

    def load_one(device: CpuDevice, case: str, **options: Any) -> Engine:
        config = RunConfig(
            model=REFERENCES / f"{case}.gguf", device="cuda", context_size=CONTEXT, batch_size=64,
            **options,
        )  # fmt: skip
        engines.append(load_engine(config, open_device=lambda _: device))
        return engines[-1]

    yield load_one
    for engine in engines:
        engine.close()


def with_less_memory(load: Load, case: str, share: float, **options: Any) -> Engine:
    """Loads on a device that lacks so much of the memory for all experts' slots."""
    plan = load(CountedDevice(), case, **options).plan
    assert plan is not None
    missing = int(share * plan.bytes_in(Tier.VRAM, Purpose.SLOTS))
    return load(CountedDevice(plan.bytes_in(Tier.VRAM) - missing), case, **options)


def greedy(engine: Engine) -> list[int]:
    """Two prompts that nearly fill the first and the second page, with tokens after each."""
    sequence, tokens = Sequence(engine.runner), list[int]()
    for prompt in (PROMPT, PROMPT[NUM_TOKENS:]):
        tokens.append(int(np.argmax(sequence.extend(prompt))))
        for _ in range(NUM_TOKENS):
            tokens.append(sequence.extend_largest(tokens[-1]))
    assert len(sequence.tokens) > 2 * PAGE_POSITIONS
    sequence.truncate(len(PROMPT) // 2)
    tokens.append(int(np.argmax(sequence.extend(tokens[:9]))))
    return tokens


def slots_now(engine: Engine) -> list[int]:
    tier = gpu_tier_of(engine.runner.parts)
    assert tier is not None
    return [layer.num_slots for layer in tier.stats(RunFacts("")).layers]


def gpu_part(engine: Engine) -> GpuPart:
    part = engine.runner.parts[-1]
    assert isinstance(part, GpuPart)
    return part


@pytest.mark.parametrize(
    ("case", "share", "kv_type", "policy"),
    [
        ("qwen3moe", 0.35, "q8_0", "slru"),
        ("qwen3next", 0.3, "f16", None),
        ("gpt-oss", 0.3, "f16", "static"),
    ],
)
def test_tokens_are_those_of_a_cache_that_was_large_from_the_start(
    case: str, share: float, kv_type: str, policy: str | None, load: Load
) -> None:
    experts = ExpertConfig(miss="bus", policy=policy)
    whole = load(CountedDevice(), case, kv_type=kv_type, moe_slots=1, experts=experts)
    assert whole.plan is not None
    assert whole.plan.gpus[0].growth is None
    wanted = greedy(whole)
    engine = with_less_memory(load, case, share, kv_type=kv_type, experts=experts)
    plan, device = engine.plan, gpu_part(engine).device
    assert plan is not None
    assert plan.gpus[0].growth is not None
    assert isinstance(device, CountedDevice)
    engine.runner.prepare()
    first = gpu_part(engine).held_bytes
    assert greedy(engine) == wanted
    assert gpu_part(engine).held_bytes > first
    before, after = (
        [layer.vram_slots for layer in plan.layers if layer.vram_slots],
        slots_now(engine),
    )
    assert sum(after) < sum(before)
    assert sum(after) >= sum(plan.gpus[0].growth.slots_beside(0).values())
    tables = 1 << 16
    assert plan.vram_budget - device.least_free <= plan.vram_budget - RESERVE_BYTES + tables
    tier = gpu_tier_of(engine.runner.parts)
    assert tier is not None
    assert any("the KV cache has grown to" in note for note in tier.notes)


def test_the_plan_says_so(load: Load) -> None:
    plan = with_less_memory(load, "qwen3moe", 0.3).plan
    assert plan is not None
    assert any("the KV cache begins with 64 of 256 positions" in note for note in plan.notes)
    (line,) = [line for line in plan.lines if line.purpose is Purpose.KV and line.tier is Tier.VRAM]
    assert "up to 256 in place of slots" in line.reason
    assert plan.bytes_in(Tier.VRAM) <= plan.vram_budget


def test_where_others_took_the_memory_one_line_says_so_and_nothing_is_lost(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    experts = ExpertConfig(miss="bus")
    engine = with_less_memory(load, "qwen3moe", 0.3, experts=experts)
    later = [7, 8, 9, 10, 11, 12, 13]
    whole = Sequence(load(CountedDevice(), "qwen3moe", moe_slots=1, experts=experts).runner)
    whole.extend(PROMPT)
    wanted = whole.extend(later).copy()
    sequence = Sequence(engine.runner)
    sequence.extend(PROMPT)

    def fail(*_: object) -> None:
        raise DeviceError("the GPU has 0 bytes left, not 1; lower -c, -b or --vram")

    with monkeypatch.context() as patch:
        patch.setattr(GpuKvCache, "_allocate", fail)
        with pytest.raises(DeviceError, match="0 bytes left"):
            sequence.extend(later)
    assert slots_now(engine) == [0, 0]
    assert sequence.tokens == PROMPT
    np.testing.assert_array_equal(sequence.extend(later), wanted)
