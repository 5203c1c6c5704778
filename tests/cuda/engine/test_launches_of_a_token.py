"""The launches of a decoded token: six for a layer with experts, and six around the layers.

It is so as well where a file mixes two quant types in a layer's attention.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_device import CpuDevice
from gguf import GGMLQuantizationType
from latent_model import write_latent
from mixed_model import rewrite
from requantise import requantise

from sharpi.device.launch import Launch
from sharpi.engine.backends.gpu.part import GpuPart
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.sequence import Sequence as Text
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.recorded import Call, Calls, StepShape
from sharpi.ops.cuda.replay import step_replay
from sharpi.resources import demo_model
from sharpi.settings import RunConfig

pytestmark = pytest.mark.native
MODEL = Path(__file__).parents[2] / "references" / "data" / "qwen3moe.gguf"


def launches(engine: Engine) -> Counter[str]:
    """Returns the number of launches of each file for one token."""
    part = engine.runner.parts[-1]
    assert isinstance(part, GpuPart)
    program = part._program(1)
    calls = program.step_replay.calls(program.step(1, 1, 0))
    assert all(isinstance(call, Launch) for call in calls)
    return Counter(call.kernel.file for call in calls if isinstance(call, Launch))


def opened(model: Path, **options: Any) -> Engine:
    config = RunConfig(model=model, device="cuda", context_size=64, **options)
    return load_engine(config, open_device=lambda _: CpuDevice(check=False))


def test_six_for_a_layer(tmp_path: Path) -> None:
    q8_0 = requantise(MODEL, tmp_path / "m.gguf", GGMLQuantizationType.Q8_0)
    with opened(q8_0) as engine:
        files = launches(engine)
    layers = 2
    in_layers = {"matvec": 3, "attention": 1, "experts_gate_up": 1, "experts_down": 1}
    around = {"embed": 1, "matvec": 1, "rms_norm": 2, "rope_angles": 1, "gather": 1}
    wanted = {
        name: layers * in_layers.get(name, 0) + around.get(name, 0) for name in in_layers | around
    }
    assert files == Counter({name: count for name, count in wanted.items() if count})
    assert files.total() == 6 * layers + 6


def test_slots_take_no_more(tmp_path: Path) -> None:
    q8_0 = requantise(MODEL, tmp_path / "m.gguf", GGMLQuantizationType.Q8_0)
    with opened(q8_0, moe_slots=3) as engine:
        files, layers = launches(engine), engine.model_config.num_layers
    assert files["slot_route"] == files["experts_gather_gate_up"] == layers
    assert files.total() == 6 * layers + 6


def test_latent_attention_rounds_and_joins_beside_other_work(tmp_path: Path) -> None:
    """Rounding is left where attention gives rows to the heads' matrices."""
    model = write_latent(tmp_path / "m.gguf", heads=4, rotated=32)
    found = []
    for disabled in ((), ("folding",)):
        with opened(model, precision="int8", disabled=disabled) as engine:
            found.append(launches(engine))
            layers = engine.model_config.num_layers
    together, apart = found
    assert together["join_heads"] == apart["join"] == 2 * layers
    assert together["join"] == apart["join_heads"] == 0
    assert apart["heads"] - together["heads"] == apart["quantise"] - together["quantise"]
    assert apart["quantise"] - together["quantise"] == 2 * layers


def test_two_types_take_one_launch(tmp_path: Path) -> None:
    """The values have another type than queries and keys, as in files of Q4_K_M."""
    types = {"attn_q.": QuantType.Q4_K, "attn_k.": QuantType.Q4_K, "attn_v.": QuantType.Q6_K}

    def choose(name: str) -> QuantType | None:
        return next((kind for part, kind in types.items() if part in name), None)

    model, found = rewrite(tmp_path, choose).mixed, []
    for disabled in ((), ("folding",)):
        with opened(model, disabled=disabled) as engine:
            files, layers = launches(engine), engine.model_config.num_layers
            found.append(engine.logits(np.array([7], np.int32)))
        assert files["matvec_mixed"] == (0 if disabled else layers)
        if not disabled:
            assert files.total() == 6 * layers + 6
    np.testing.assert_array_equal(*found)


Load = Callable[..., Engine]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    """Returns every launch twice: when it is made, and when it starts."""
    found: list[Launch] = []
    make, launch = step_replay._calls, CpuDevice.launch

    def watched_calls(operations: Sequence[Calls], step: StepShape) -> Iterator[Call]:
        for call in make(operations, step):
            if isinstance(call, Launch):
                found.append(call)
            yield call

    def watched_launch(self: CpuDevice, what: Launch) -> None:
        found.append(what)
        launch(self, what)

    monkeypatch.setattr(step_replay, "_calls", watched_calls)
    monkeypatch.setattr(CpuDevice, "launch", watched_launch)
    return found


def test_each_launch_starts_before_the_next_is_made(load: Load, events: list[Launch]) -> None:
    engine = load(demo_model(), context_size=64, batch_size=16)
    events.clear()
    Text(engine.runner).extend(list(range(1, 9)))
    assert len(events) > 20
    assert all(made is started for made, started in zip(events[::2], events[1::2], strict=True))
