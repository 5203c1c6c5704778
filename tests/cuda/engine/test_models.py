"""Whole models through the CUDA code path, against `transformers` and the CPU engine."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from agreement import errors_by_token, float_attention
from cpu_device import CpuDevice
from gguf import GGMLQuantizationType
from requantise import requantise

from sharpi.device.device import Device
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.sequence import Sequence
from sharpi.errors import DeviceError, UnsupportedModelError, UsageError
from sharpi.settings import (
    ExpertConfig,
    GenerationRequest,
    KvType,
    Miss,
    RunConfig,
    SamplingParams,
)

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[2] / "references" / "data"
DEMO = Path(__file__).parents[3] / "models" / "demo" / "stories-moe.gguf"
SPARSE = {"deepseek32": 64, "glm-dsa": 64, "minimax-m3": 32}  # positions that indexers choose
CASES = sorted(path.stem for path in REFERENCES.glob("*.npz") if "-chosen" not in path.stem)
# In float32, one model for each kind of layer.
FLOAT_CASES = (
    "deepseek2-lite", "gemma3", "gemma4-moe", "gpt-oss", "granitehybrid", "lfm2moe", "llama4",
    "nemotron_h_moe", "qwen2moe", "qwen35moe", "qwen3moe", "qwen3next",
)  # fmt: skip
Load = Callable[..., Engine]
NUM_STEPS = 20  # of 32 tokens: past two windows, and past what rotations are stretched for
FEW_STEPS = 8  # where there are no windows


def expected(case: str) -> tuple[np.ndarray, np.ndarray]:
    with np.load(REFERENCES / f"{case}.npz") as arrays:
        return arrays["tokens"].astype(np.int32), arrays["logits"]


def error(logits: np.ndarray, reference: np.ndarray) -> float:
    return float(np.linalg.norm(logits - reference) / np.linalg.norm(reference))


def typical_error(logits: np.ndarray, reference: np.ndarray) -> float:
    """Returns the error of the median token; between nearly equal experts rounding decides."""
    norms = errors_by_token(logits, reference)
    assert np.mean(norms > 0.1) < 0.1
    return float(np.median(norms))


def step_by_step(engine: Engine, ids: np.ndarray) -> np.ndarray:
    sequence = Sequence(engine.runner)
    return np.stack([sequence.extend([i]).copy() for i in ids.tolist()])


@pytest.mark.parametrize("case", FLOAT_CASES)
def test_float32_logits_are_those_of_transformers(case: str, load: Load) -> None:
    ids, logits = expected(case)
    engine = load(REFERENCES / f"{case}.gguf", precision="f32")
    assert error(engine.logits(ids), logits) < 2e-3


@pytest.mark.parametrize("case", CASES)
def test_rounded_activations_give_what_the_cpu_gives(case: str, load: Load, tmp_path: Path) -> None:
    """Step by step, every product is on the quant blocks; all at once, through f16 matrices.

    Steps are most of the cost, so only the first tokens are computed step by step.
    The two differ by less than what rounding costs: a last bit may turn a rounding of 8 bits.
    """
    ids, exact = expected(case)
    q8_0 = requantise(REFERENCES / f"{case}.gguf", tmp_path / "m.gguf", GGMLQuantizationType.Q8_0)
    on_cpu = {"device": "cpu", "instruction_set": float_attention()}
    wanted = load(q8_0, precision="int8", **on_cpu).logits(ids)
    engine = load(q8_0, precision="int8", context_size=SPARSE.get(case))
    rounding = typical_error(wanted, exact)
    assert typical_error(engine.logits(ids), exact) < 1.2 * rounding
    has_windows = any(shape.window for shape in engine.model_config.attention)
    count = NUM_STEPS if has_windows else FEW_STEPS
    steps = step_by_step(engine, ids[:count])
    assert typical_error(steps, wanted[:count]) < 0.6 * rounding


@pytest.mark.parametrize("case", SPARSE)
def test_positions_are_chosen_on_the_cpu_alone(case: str, load: Load) -> None:
    with pytest.raises(
        UnsupportedModelError, match=f"beyond {SPARSE[case]} positions.*-c {SPARSE[case]}"
    ):
        load(REFERENCES / f"{case}.gguf", context_size=128)


BATCHED = ["qwen3moe", "gemma3", "gpt-oss", "deepseek3", "qwen3next", "granitehybrid", "lfm2moe"]


@pytest.mark.parametrize("case", BATCHED)
def test_few_tokens_at_once_have_the_bits_of_single_ones(
    case: str, load: Load, tmp_path: Path
) -> None:
    ids, _ = expected(case)
    q4_0 = requantise(REFERENCES / f"{case}.gguf", tmp_path / "m.gguf", GGMLQuantizationType.Q4_0)
    engine = load(q4_0, batch_size=13)
    assert np.array_equal(engine.logits(ids), step_by_step(engine, ids))


@pytest.mark.parametrize("case", ["qwen3moe", "llama", "gemma3", "qwen35moe", "gemma4-moe"])
def test_layers_on_both_processors(case: str, load: Load) -> None:
    ids, logits = expected(case)
    engine = load(REFERENCES / f"{case}.gguf", precision="f32", gpu_layers=1)
    assert len(engine.runner.parts) == 2
    assert error(engine.logits(ids), logits) < 2e-3
    assert error(step_by_step(engine, ids), logits) < 2e-3


def test_layers_that_read_earlier_ones_keys_stay_with_them(load: Load) -> None:
    """The last two of the six layers read the keys of the two before them."""
    ids, logits = expected("gemma4-e2b")
    model = REFERENCES / "gemma4-e2b.gguf"
    engine = load(model, precision="f32", gpu_layers=4)
    assert len(engine.runner.parts) == 2
    assert error(engine.logits(ids), logits) < 2e-3
    with pytest.raises(DeviceError):
        load(model, gpu_layers=3)


@pytest.mark.parametrize("gpu_layers", [None, 1])
@pytest.mark.parametrize("case", ["qwen3next", "nemotron_h_moe", "lfm2moe"])
def test_recurrent_layers_go_back_to_a_snapshot(
    case: str, gpu_layers: int | None, load: Load
) -> None:
    engine = load(REFERENCES / f"{case}.gguf", gpu_layers=gpu_layers)
    ids = expected(case)[0].tolist()
    fresh, edited = Sequence(engine.runner), Sequence(engine.runner)
    wanted = fresh.extend(ids[:12] + ids[20:25]).copy()
    for part in (ids[:10], ids[10:20]):
        edited.extend(part)
        edited.save_snapshot()
    edited.truncate(12)
    assert edited._open().length == 10
    assert np.array_equal(edited.extend(ids[20:25]), wanted)


@dataclass(frozen=True)
class WholeModel:
    """A model's file, and the logits of a GPU that has all of its experts."""

    path: Path
    at_once: np.ndarray
    in_steps: np.ndarray


@pytest.fixture(scope="module")
def whole(device: Device, tmp_path_factory: pytest.TempPathFactory) -> WholeModel:
    path = tmp_path_factory.mktemp("whole") / "m.gguf"
    requantise(REFERENCES / "qwen3moe.gguf", path, GGMLQuantizationType.Q8_0)
    ids, _ = expected("qwen3moe")
    config = RunConfig(model=path, device="cuda")
    with load_engine(config, open_device=lambda _: device) as engine:
        steps = step_by_step(engine, ids[:NUM_STEPS])
        return WholeModel(path, engine.logits(ids).copy(), steps)


@pytest.mark.parametrize(("miss", "slots"), [("bus", 1), ("bus", 8)])
def test_where_an_expert_lies_changes_no_bit(
    slots: int, miss: Miss, load: Load, whole: WholeModel
) -> None:
    ids, _ = expected("qwen3moe")
    some = load(whole.path, moe_slots=slots, experts=ExpertConfig(miss=miss))
    assert some.plan is not None
    assert set(some.plan.vram_slots) == {slots}
    assert np.array_equal(some.logits(ids), whole.at_once)
    assert np.array_equal(step_by_step(some, ids[:NUM_STEPS]), whole.in_steps)


def test_kv_cache_of_8_bits(load: Load) -> None:
    ids, logits = expected("llama-biases")
    model = REFERENCES / "llama-biases.gguf"
    half, eighth = load(model, precision="f32"), load(model, precision="f32", kv_type="q8_0")
    assert error(step_by_step(eighth, ids), logits) < 2e-2
    assert error(step_by_step(half, ids), logits) < 2e-3
    sizes = [engine.runner.parts[-1].cache.num_bytes for engine in (half, eighth)]
    assert sizes[1] < 0.6 * sizes[0]


@pytest.mark.parametrize(
    ("case", "keys", "values"),
    [
        ("llama-biases", "q4_0", "q5_0"),
        ("gpt-oss", "turbo3", "iq4_nl"),
        ("qwen3moe", "f16", "q4_0"),
    ],
)
def test_keys_and_values_of_few_bits_are_those_of_the_cpu(
    case: str, keys: KvType, values: KvType, load: Load
) -> None:
    ids, _ = expected(case)
    model = REFERENCES / f"{case}.gguf"
    types = {"precision": "f32", "key_type": keys, "value_type": values}
    wanted = load(model, device="cpu", **types).logits(ids)
    exact = load(model, device="cpu", precision="f32").logits(ids)
    engine = load(model, **types)
    rounding = error(wanted, exact)
    assert error(engine.logits(ids), wanted) < max(0.2 * rounding, 2e-3)
    assert error(step_by_step(engine, ids), wanted) < max(0.2 * rounding, 2e-3)


def test_heads_that_8_bits_do_not_fit_are_refused(load: Load) -> None:
    with pytest.raises(UsageError, match=r"q8_0 .* heads have 56"):
        load(REFERENCES / "deepseek3.gguf", kv_type="q8_0")


def test_greedy_answers_are_stable_and_those_of_the_cpu(load: Load, device: Device) -> None:
    """A GPU's last bits differ from the CPU's, so there the tokens are promised by no rule."""
    request = GenerationRequest(max_tokens=8, sampling=SamplingParams(temperature=0))
    answers = []
    for device in ("cuda", "cuda", "cpu"):
        engine = load(DEMO, device=device)
        prompt = engine.tokenizer.encode("Once upon a time", add_bos=True, parse_special=False)
        answers.append(list(engine.session().generate(prompt, request)))
    assert answers[0] == answers[1]
    assert answers[0] == answers[2] or not isinstance(device, CpuDevice)


def test_routes_are_those_of_the_cpu(load: Load) -> None:
    ids, _ = expected("qwen3moe")
    model = REFERENCES / "qwen3moe.gguf"
    engines = [load(model, precision="f32", device=device) for device in ("cuda", "cpu")]
    for engine in engines:
        Sequence(engine.runner).extend(ids[:5].tolist())
    on_gpu, on_cpu = (engine.runner.routes for engine in engines)
    for gpu, cpu in zip(on_gpu[:-1], on_cpu[:-1], strict=True):
        assert np.array_equal(gpu[:5], cpu[:5])
    assert np.array_equal(on_gpu[-1][:1], on_cpu[-1][:1])
