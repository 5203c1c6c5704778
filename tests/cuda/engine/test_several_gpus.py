"""One model over several GPUs, run by the CPU execution: the bits are those of one GPU."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from cpu_device import CpuDevice
from msgspec.structs import replace
from with_head import with_head

from sharpi.engine.backends.gpu.part import GpuPart
from sharpi.engine.backends.parts import gpu_tier_of
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.sequence import Sequence
from sharpi.errors import DeviceError
from sharpi.experts.layer_stats import LayerStats
from sharpi.settings import (
    ExpertConfig,
    GenerationRequest,
    RunConfig,
    SamplingParams,
    SpeculationConfig,
)
from sharpi.tiers import gpu as gpu_planning
from sharpi.tiers.expert_memory import GpuStaging
from sharpi.tiers.gpu import RESERVE_BYTES
from sharpi.tiers.plan import Purpose, Tier

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[2] / "references" / "data"
GREEDY = GenerationRequest(max_tokens=4, sampling=SamplingParams(temperature=0))
DEMO = Path(__file__).parents[3] / "models" / "demo" / "stories-moe.gguf"
MIB = 1 << 20


class Load(Protocol):
    def __call__(self, model: Path, *, count: int, **options: Any) -> Engine: ...


def machine(count: int, **settings: Any) -> CpuDevice:
    """Returns the first GPU of a machine with `count` GPUs."""
    settings = {"check": False} | settings
    return CpuDevice(others=[CpuDevice(**settings) for _ in range(count - 1)], **settings)


@pytest.fixture
def load() -> Iterator[Load]:
    engines: list[Engine] = []

    def load_one(model: Path, *, count: int, **options: Any) -> Engine:
        gpus = tuple(range(count)) if count > 1 else ()
        config = RunConfig(model=model, **({"device": "cuda", "gpus": gpus} | options))
        first = machine(count)
        engines.append(load_engine(config, open_device=lambda _: first))
        return engines[-1]

    yield load_one
    for engine in engines:
        engine.close()


def ids_of(case: str) -> np.ndarray:
    with np.load(REFERENCES / f"{case}.npz") as arrays:
        return np.asarray(arrays["tokens"].astype(np.int32))


def gpu_layers(engine: Engine) -> list[range]:
    assert engine.plan is not None
    return [place.layers for place in engine.plan.gpus]


def step_by_step(engine: Engine, ids: np.ndarray) -> np.ndarray:
    sequence = Sequence(engine.runner)
    return np.stack([sequence.extend([i]).copy() for i in ids.tolist()])


def test_a_head_drafts_beside_two_gpus(load: Load, tmp_path: Path) -> None:
    """The head reads the last GPU's hidden states, and neither GPU runs the head's layer."""
    model = with_head(REFERENCES / "qwen3moe.gguf", tmp_path / "headed.gguf")
    prompt = np.random.default_rng(7).integers(3, 280, 12).tolist()
    request, texts = replace(GREEDY, max_tokens=8, ignore_end=True), []
    for speculation in (SpeculationConfig(), SpeculationConfig(kinds=("mtp",), max_drafts=3)):
        engine = load(model, count=2, context_size=64, speculation=speculation)
        assert gpu_layers(engine) == [range(1), range(1, 2)]
        generation = engine.session().generate(prompt, request)
        list(generation)
        texts.append(generation.ids)
    assert texts[0] == texts[1]
    assert engine.speculator.statistics.num_accepted > 0


@pytest.mark.parametrize(
    "case", ["qwen3moe", "gemma4-e2b", "gemma4-moe", "qwen3next", "deepseek3", "gpt-oss"]
)
def test_bits_are_those_of_one_gpu(case: str, load: Load) -> None:
    """The prompt fills a batch and a half, and each part hands all of its tokens on."""
    ids = ids_of(case)[:20]
    model = REFERENCES / f"{case}.gguf"
    one, two = (load(model, count=count, batch_size=12) for count in (1, 2))
    assert len([part for part in two.runner.parts if isinstance(part, GpuPart)]) == 2
    assert np.array_equal(two.logits(ids), one.logits(ids))
    assert np.array_equal(step_by_step(two, ids[:4]), step_by_step(one, ids[:4]))


@pytest.mark.parametrize("case", ["gpt-oss", "gemma4-e2b"])
def test_layers_on_the_cpu_and_on_two_gpus(case: str, load: Load) -> None:
    ids, count = ids_of(case)[:14], 2 if case == "gpt-oss" else 5
    model = REFERENCES / f"{case}.gguf"
    options: dict[str, Any] = {"gpu_layers": count, "batch_size": 8}
    one, two = (load(model, count=gpus, **options) for gpus in (1, 2))
    assert len(two.runner.parts) == 1 + len(gpu_layers(two)) >= 2
    assert sum(map(len, gpu_layers(two))) == count
    assert np.array_equal(two.logits(ids), one.logits(ids))


@pytest.mark.parametrize(
    ("shares", "layers"),
    [((1.0, 3.0), [range(1), range(1, 3)]), ((1.0, 0.0, 1.0), [range(2), range(2, 3)])],
)
def test_shares_of_layers(shares: tuple[float, ...], layers: list[range], load: Load) -> None:
    model = REFERENCES / "gpt-oss.gguf"
    engine = load(model, count=len(shares), tensor_split=shares)
    assert gpu_layers(engine) == layers
    assert np.isfinite(engine.logits(ids_of("gpt-oss")[:3])).all()


def test_a_gpu_that_is_not_there_is_named(load: Load) -> None:
    with pytest.raises(DeviceError, match="cuda:2 is not there"):
        load(REFERENCES / "qwen3moe.gguf", count=2, gpus=(0, 2))
    engine = load(REFERENCES / "qwen3moe.gguf", count=2, gpus=(0, 2), device="auto", vram=8 << 30)
    assert any("the CPU computes, not the GPU: cuda:2" in note for note in engine.notes)


def without_times(layer: LayerStats) -> LayerStats:
    """Returns the counts without the times, since a GPU's waits differ from run to run."""
    prompt, decode = (replace(each, stall_seconds=0.0) for each in (layer.prompt, layer.decode))
    return replace(layer, prompt=prompt, decode=decode)


class TestExpertsInSlots:
    """Each GPU has slots for its own layers; the records equal those of one GPU."""

    MODEL = REFERENCES / "qwen3moe.gguf"

    def test_bits_and_counts_are_those_of_one_gpu(
        self, load: Load, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        staging = GpuStaging(num_missed=4, num_early=2, num_streamed=2)
        monkeypatch.setattr(gpu_planning, "gpu_staging", lambda *_: staging)
        experts = ExpertConfig(miss="bus", prefetch=False, policy="slru")
        options: dict[str, Any] = {
            "moe_slots": 3, "batch_size": 8, "context_size": 64, "experts": experts,
            "disabled": ("graphs",),  # one GPU would run ahead, and load for a step in vain
        }  # fmt: skip
        ids = ids_of("qwen3moe")[:19]
        one, two = (load(self.MODEL, count=count, **options) for count in (1, 2))
        for engine in (one, two):
            assert engine.runner.prompt_batch > 8  # prompts pass layer by layer on each GPU
        answers = [engine.session().generate(ids.tolist(), GREEDY) for engine in (one, two)]
        assert list(answers[0]) == list(answers[1])
        assert np.array_equal(step_by_step(two, ids[:3]), step_by_step(one, ids[:3]))
        stats = [engine.expert_stats() for engine in (one, two)]
        assert stats[0] is not None
        assert stats[1] is not None
        counts = [[without_times(layer) for layer in each.layers] for each in stats if each]
        assert counts[1] == counts[0]
        views = [engine.expert_view() for engine in (one, two)]
        assert views[0] is not None
        assert views[1] is not None
        assert np.array_equal(views[0].uses, views[1].uses)
        assert np.array_equal(views[0].resident, views[1].resident)
        tiers = [gpu_tier_of(engine.runner.parts) for engine in (one, two)]
        assert tiers[0] is not None
        assert tiers[1] is not None
        assert tiers[0].loads_and_pins() == tiers[1].loads_and_pins()

    def test_a_learned_policy_with_all_checks(self) -> None:
        """A GPU's policy sees only the layers of that GPU."""
        first = machine(2, check=True)
        options: dict[str, Any] = {"moe_slots": 2, "batch_size": 8, "gpus": (0, 1)}
        config = RunConfig(self.MODEL, device="cuda", **options)
        with load_engine(config, open_device=lambda _: first) as engine:
            assert len(gpu_layers(engine)) == 2
            answer = engine.session().generate(ids_of("qwen3moe")[:9].tolist(), GREEDY)
            assert len(list(answer)) > 0

    def test_vram_of_two_gpus_ram_and_disk(self, load: Load) -> None:
        """Each GPU moves the experts of its own layers; the CPU computes what both lack."""
        options: dict[str, Any] = {"moe_slots": 4, "context_size": 128, "batch_size": 16}
        ids = [1, *range(300, 306)]
        one, two = (load(DEMO, count=count, ram=9 * MIB, **options) for count in (1, 2))
        assert len(gpu_layers(two)) == 2
        assert two.streams_experts
        answers = [list(engine.session().generate(ids, GREEDY)) for engine in (one, two)]
        assert answers[0] == answers[1]


class TestFurtherGpusAreUsedWhereOneIsTooSmall:
    """Unless GPUs are named, the first one is used; others only if the model does not fit on it."""

    MODEL = REFERENCES / "qwen3moe.gguf"

    def test_one_is_enough(self, load: Load) -> None:
        first = machine(2)
        with load_engine(
            RunConfig(self.MODEL, device="cuda"), open_device=lambda _: first
        ) as engine:
            assert len(gpu_layers(engine)) == 1

    def test_one_is_too_small(self, load: Load) -> None:
        whole = load(self.MODEL, count=1)
        assert whole.plan is not None
        experts = whole.plan.bytes_in(Tier.VRAM, Purpose.SLOTS)
        first = machine(2, memory_bytes=whole.plan.gpus[0].num_bytes - experts // 4)
        config = RunConfig(self.MODEL, device="cuda")
        with load_engine(config, open_device=lambda _: first) as engine:
            assert len(gpu_layers(engine)) == 2
            ids = ids_of("qwen3moe")[:5]
            assert np.array_equal(engine.logits(ids), whole.logits(ids))

    def test_another_that_cannot_be_used_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first = machine(2, memory_bytes=RESERVE_BYTES + MIB)

        def refuse(index: int) -> CpuDevice:
            raise DeviceError("too old")

        monkeypatch.setattr(first, "open_peer", refuse)
        config = RunConfig(self.MODEL, vram=8 << 30)
        with load_engine(config, open_device=lambda _: first) as engine:
            assert any("too old" in note or "no room" in note for note in engine.notes)


def test_unlike_gpus_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The faster GPU gets more layers where both hold them all."""
    from sharpi.engine.placement import choice
    from sharpi.ops.cuda import gpu_limits

    rates = {"fast": 900e9, "slow": 300e9}
    monkeypatch.setattr(gpu_limits, "filled_memory", lambda device, size: None)
    monkeypatch.setattr(
        gpu_limits, "read_bytes_per_second", lambda device, memory: rates[device.name]
    )
    slow, fast = CpuDevice(check=False, name="slow"), CpuDevice(check=False, name="fast")
    assert choice.measured_rates([slow, fast]) == (300e9, 900e9)
    assert choice.measured_rates([slow, slow]) == ()
