"""The choice of a processor and its notes; allocations do not exceed the plan."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_device import CpuDevice

from sharpi.device.device import Device
from sharpi.engine.backends.model_part import Segment
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.placement.choice import GpuChoice
from sharpi.errors import DeviceError, MissingPackageError
from sharpi.settings import RunConfig
from sharpi.tiers.gpu import RESERVE_BYTES
from sharpi.tiers.plan import Tier

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[2] / "references" / "data"
MODEL = REFERENCES / "qwen3moe.gguf"
MIB = 1 << 20
Load = Callable[..., Engine]


def missing(_: int) -> Device:
    raise DeviceError("the driver went home")


@pytest.fixture
def load() -> Iterator[Load]:
    engines: list[Engine] = []

    def load_one(open_device: Callable[[int], Device], **options: Any) -> Engine:
        model = options.pop("model", MODEL)
        engines.append(load_engine(RunConfig(model=model, **options), open_device=open_device))
        return engines[-1]

    yield load_one
    for engine in engines:
        engine.close()


def on_gpu(engine: Engine) -> bool:
    return engine.plan is not None and bool(engine.plan.bytes_in(Tier.VRAM))


@pytest.mark.parametrize(
    "options",
    [
        {"vram": 8 << 30},
        {"gpu_layers": 1},
        {"tensor_split": (3.0, 1.0)},
    ],
)
def test_without_a_gpu_the_cpu_computes_and_a_note_says_why(
    options: dict[str, Any], load: Load
) -> None:
    engine = load(missing, **options)
    assert not on_gpu(engine)
    notes = [note for note in engine.notes if "GPU" in note]
    assert notes == ["the CPU computes, not the GPU: the driver went home"]


def test_who_insists_is_told(load: Load) -> None:
    with pytest.raises(DeviceError, match="went home"):
        load(missing, device="cuda")


def test_packages_are_only_advised_where_there_is_a_gpu() -> None:
    def without_cupy(_: int) -> Device:
        raise MissingPackageError("cupy is missing; pip install a lot")

    config = RunConfig(model=MODEL, gpu_layers=5)
    (note,) = GpuChoice(config, without_cupy, is_there=lambda: False).notes
    assert note.startswith("the CPU computes, not the GPU: no NVIDIA GPU was found")
    assert "pip" not in note
    (note,) = GpuChoice(config, without_cupy, is_there=lambda: True).notes
    assert "pip install a lot" in note


@pytest.mark.parametrize("options", [{"device": "cpu"}, {"gpu_layers": 0}])
def test_a_gpu_that_is_not_wanted_is_not_opened(options: dict[str, Any], load: Load) -> None:
    engine = load(missing, **options)
    assert not any("gpu" in note for note in engine.notes)


def test_a_gpu_is_used_where_there_is_one() -> None:
    config = RunConfig(model=MODEL)
    assert GpuChoice(config, lambda _: CpuDevice(), is_there=lambda: True).devices
    assert GpuChoice(config, lambda _: CpuDevice(), is_there=lambda: False).devices == ()


def test_a_gpu_without_room_is_left_alone(load: Load) -> None:
    engine = load(lambda _: CpuDevice(memory_bytes=RESERVE_BYTES), vram=8 << 30)
    assert not on_gpu(engine)
    assert any("no room for a single layer" in note for note in engine.notes)
    with pytest.raises(DeviceError, match="no room"):
        load(lambda _: CpuDevice(memory_bytes=RESERVE_BYTES), device="cuda")


def test_more_than_is_free_is_not_planned_for(load: Load) -> None:
    device = CpuDevice(memory_bytes=RESERVE_BYTES + 64 * MIB)
    engine = load(lambda _: device, vram=1 << 40)
    assert engine.plan is not None
    assert engine.plan.vram_budget == RESERVE_BYTES + 64 * MIB


def test_8_bit_keys_need_no_gpu(load: Load) -> None:
    engine = load(missing, vram=8 << 30, kv_type="q8_0")
    assert not on_gpu(engine)
    assert any("the CPU computes" in note for note in engine.notes)


@pytest.mark.parametrize(
    ("case", "batch_size"), [("qwen3moe", 64), ("deepseek3", 7), ("qwen3next", 64), ("gpt-oss", 7)]
)
def test_no_more_is_taken_than_was_planned(case: str, batch_size: int, load: Load) -> None:
    """A step of each kind runs, so that everything is allocated that will ever be."""
    device = CpuDevice(check=False)
    before = device.free_bytes
    engine = load(
        lambda _: device, model=REFERENCES / f"{case}.gguf", device="cuda", batch_size=batch_size
    )
    engine.runner.prepare()
    pages = np.array([engine.runner.pages.allocate()], np.int32)
    ids = np.arange(5, 5 + min(batch_size, 40), dtype=np.int32)
    state = engine.runner.states.allocate() if engine.runner.states.size else None
    last = np.array([len(ids) - 1], np.int32)
    engine.runner.step([Segment(ids, 0, last, pages, state)])
    token = Segment(ids[:1], len(ids), np.zeros(1, np.int32), pages, state)
    engine.runner.step([token], wants_largest=True)
    assert 0 <= engine.runner.largest() < engine.runner.vocab_size
    assert engine.plan is not None
    planned = engine.plan.bytes_in(Tier.VRAM) - RESERVE_BYTES
    assert 0 < before - device.free_bytes <= planned
