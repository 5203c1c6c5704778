"""Steps of several sequences on a GPU share launches, and each has the same bits as alone."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from cpu_device import CpuDevice
from gguf import GGMLQuantizationType
from requantise import requantise

from sharpi.device.device import Device
from sharpi.engine.backends.gpu.part import GpuPart
from sharpi.engine.backends.gpu.tier import GpuTier
from sharpi.engine.backends.model_part import Segment
from sharpi.engine.backends.parts import gpu_tier_of
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.runner import Runner
from sharpi.experts.stats.stats import ExpertStats
from sharpi.experts.stats.stats_collect import RunFacts
from sharpi.experts.stats.stats_file import contradiction
from sharpi.ops.cuda.replay import step_replay
from sharpi.ops.cuda.replay.program import GpuProgram
from sharpi.settings import ExpertConfig, Miss, RunConfig

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[2] / "references" / "data"
DEMO = Path(__file__).parents[3] / "models" / "demo" / "stories-moe.gguf"
# One model for each kind of layer: expert routing of every form, windows, sinks, latent attention,
# gated delta nets, Mamba-2, convolutions, dense layers.
CASES = (
    "deepseek2-lite", "gemma3", "gemma4-moe", "gpt-oss", "granitehybrid", "lfm2moe", "llama4",
    "nemotron_h_moe", "qwen2moe", "qwen35moe", "qwen3moe", "qwen3next",
)  # fmt: skip
PAGES_EACH = 2
NUM_DECODED = 4  # shared steps of single tokens: the third and later ones replay a graph
Load = Callable[..., Engine]
Floats = npt.NDArray[np.float32]


@dataclass
class Text:
    """One sequence, its pages and its state; `logits` of every step, of the last token each."""

    number: int
    ids: npt.NDArray[np.int32]
    pages: npt.NDArray[np.int32]
    position: int = 0
    logits: list[Floats] = field(default_factory=list)

    def take(self, count: int) -> Segment:
        """Takes the next tokens."""
        ids = self.ids[self.position : self.position + count]
        last = np.array([len(ids) - 1], np.int32)
        return Segment(ids, self.position, last, self.pages, self.number, self.number)


def texts(vocabulary: int, count: int, length: int = 90) -> list[Text]:
    """Creates sequences whose pages are in random order."""
    rng = np.random.default_rng(count)
    pages = rng.permutation(count * PAGES_EACH).astype(np.int32).reshape(count, PAGES_EACH)
    rows = rng.integers(3, vocabulary, (count, length)).astype(np.int32)
    return [Text(i, rows[i], pages[i]) for i in range(count)]


def run(runner: Runner, step: dict[int, int], some: list[Text]) -> None:
    """Runs one step with so many tokens of these sequences."""
    segments = [some[number].take(count) for number, count in step.items()]
    logits = runner.step(segments).copy()
    for segment, row in zip(segments, logits, strict=True):
        some[segment.sequence].position += len(segment.ids)
        some[segment.sequence].logits.append(row)


def compare(engine: Engine, steps: list[dict[int, int]], count: int = 3) -> None:
    """Compares all sequences together with one after the other, in the same batches."""
    runner = engine.runner
    vocabulary = min(runner.vocab_size, 280)
    together, alone = texts(vocabulary, count), texts(vocabulary, count)
    for step in steps:
        run(runner, step, together)
    for text in alone:
        for step in steps:
            if text.number in step:
                run(runner, {text.number: step[text.number]}, alone)
    for one, other in zip(together, alone, strict=True):
        assert one.logits
        for mine, own in zip(one.logits, other.logits, strict=True):
            np.testing.assert_array_equal(mine, own)


def options(count: int = 3) -> dict[str, Any]:
    return {"num_parallel": count, "context_size": 64 * PAGES_EACH * count, "batch_size": 64}


# A prompt beside tokens of others, then uneven parts of all, in any order.
STEPS = [
    {1: 3},
    {0: 33, 1: 1},
    {1: 1, 2: 17, 0: 2},
    {0: 1, 1: 1, 2: 1},
    {0: 1, 1: 1, 2: 1},
]
# The same past the end of a page.
LONG_STEPS = [*STEPS, {0: 24, 2: 5, 1: 1}, {2: 1, 0: 3, 1: 1}, {0: 2, 1: 2}, {2: 1, 0: 1}]


@pytest.mark.parametrize("case", CASES)
def test_models_of_all_kinds(case: str, load: Load) -> None:
    compare(load(REFERENCES / f"{case}.gguf", **options()), STEPS)


@pytest.mark.parametrize("case", ["qwen3moe", "qwen3next"])
def test_quant_blocks(case: str, load: Load, tmp_path: Path) -> None:
    q4_0 = requantise(REFERENCES / f"{case}.gguf", tmp_path / "m.gguf", GGMLQuantizationType.Q4_0)
    compare(load(q4_0, **options()), LONG_STEPS)


def test_kv_cache_of_8_bits(load: Load) -> None:
    compare(load(REFERENCES / "qwen3moe.gguf", kv_type="q8_0", **options()), LONG_STEPS)


@pytest.mark.parametrize("case", ["qwen3moe", "qwen35moe"])
def test_layers_on_both_processors(case: str, load: Load) -> None:
    compare(load(REFERENCES / f"{case}.gguf", gpu_layers=1, **options()), STEPS)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("case", ["gpt-oss", "qwen3next", "nemotron_h_moe"])
def test_random_steps(case: str, seed: int, load: Load) -> None:
    rng = np.random.default_rng(seed)
    steps = []
    for _ in range(6):
        who = rng.permutation(3)[: rng.integers(1, 4)]
        steps.append({int(i): int(rng.choice([1, 1, 2, 5, 12])) for i in who})
    compare(load(REFERENCES / f"{case}.gguf", **options()), [*steps, {0: 1, 1: 1, 2: 1}])


def test_many_decoding_tokens_are_no_batch(load: Load, tmp_path: Path) -> None:
    """From 32 tokens on, prompts multiply f16 matrices, whose bits differ."""
    q8_0 = requantise(REFERENCES / "qwen3moe.gguf", tmp_path / "m", GGMLQuantizationType.Q8_0)
    steps = [dict.fromkeys(range(first, first + 7), 4) for first in range(0, 35, 7)]
    steps += [dict.fromkeys(range(35), 1)] * 2
    compare(load(q8_0, **options(35)), steps, 35)


def program_of(engine: Engine) -> GpuProgram:
    part = engine.runner.parts[-1]
    assert isinstance(part, GpuPart)
    return part._program(engine.runner.settings.num_parallel)


@pytest.fixture
def launches(device: Device, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Records all launches."""
    seen: list[Any] = []
    launch = device.launch
    monkeypatch.setattr(device, "launch", lambda each: (seen.append(each), launch(each)))
    return seen


@pytest.mark.parametrize("case", ["qwen3moe", "qwen3next"])
def test_launches_are_shared(case: str, load: Load, launches: list[Any]) -> None:
    engine, counts = load(REFERENCES / f"{case}.gguf", **options()), []
    some = texts(280, 3)
    for step in ({0: 1}, {1: 1}, {0: 1, 1: 1, 2: 1}, {0: 1, 2: 1}):
        launches.clear()
        run(engine.runner, step, some)
        counts.append(len(launches))
    assert 0 < counts[0] == counts[1] <= counts[2] == counts[3] < 2 * counts[0]


def test_graphs_are_kept_as_far_as_there_is_room(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_replay, "MAX_GRAPHS", 2)
    engine = load(REFERENCES / "qwen3moe.gguf", **options())
    groups = [{0: 1}, {0: 1, 1: 1}, {0: 1, 1: 1, 2: 1}]
    compare(engine, [{0: 3, 1: 5, 2: 2}, *(each for each in groups for _ in range(3)), groups[0]])
    kept = program_of(engine).step_replay.graphs
    assert 0 < len(kept) <= 2
    assert all(step.tokens == step.sequences for step in kept)


def tier_of(engine: Engine) -> GpuTier:
    tier = gpu_tier_of(engine.runner.parts)
    assert tier is not None
    return tier


@pytest.mark.parametrize("slots", [1, 3])
def test_experts_with_slots(slots: int, load: Load, tmp_path: Path) -> None:
    q8_0 = requantise(REFERENCES / "qwen3moe.gguf", tmp_path / "m", GGMLQuantizationType.Q8_0)
    engine = load(q8_0, moe_slots=slots, experts=ExpertConfig(miss="bus"), **options())
    compare(engine, [{0: 3, 1: 40}, {0: 2, 1: 1}, *[{0: 1, 1: 1, 2: 1}] * 6])


def words(device: Device, **fields: Any) -> tuple[list[list[int]], list[ExpertStats]]:
    """Returns greedy words of three answers decoded together, and the expert statistics.

    The statistics are those after the first of NUM_DECODED steps, and after all of them.
    """
    config = RunConfig(model=DEMO, device="cuda", **options(), **fields)
    engine, some, stats = load_engine(config, open_device=lambda _: device), texts(2000, 3), []
    run(engine.runner, {0: 3, 1: 2, 2: 2}, some)
    for count in (1, NUM_DECODED - 1):
        for _ in range(count):
            run(engine.runner, {0: 1, 1: 1, 2: 1}, some)
        if "moe_slots" in fields:
            stats.append(tier_of(engine).stats(RunFacts("model")))
    engine.close()
    return [[int(np.argmax(row)) for row in text.logits] for text in some], stats


@cache
def words_without_slots() -> list[list[int]]:
    """Returns the words of a GPU that has all experts, which no case of a test changes."""
    found, _ = words(CpuDevice(check=False))
    return found


@pytest.mark.parametrize(("miss", "policy"), [("bus", "slru"), ("cpu", "learned-keep")])
def test_slots_are_filled_by_every_token(miss: Miss, policy: str) -> None:
    """Tokens of shared steps fill slots as single ones do, and the words are the same."""
    asked = ExpertConfig(miss=miss, policy=policy)
    found, (before, after) = words(CpuDevice(check=False), moe_slots=3, experts=asked)
    assert found == words_without_slots()
    steps = NUM_DECODED - 1
    for early, late in zip(before.layers, after.layers, strict=True):
        number = late.decode.accesses - early.decode.accesses
        assert steps < number / after.experts_per_token <= 3 * steps
        assert sum(late.uses) - sum(early.uses) == 3 * steps * after.experts_per_token
    assert contradiction(after) is None
    assert after.prediction is not None
    assert after.prediction.predicted_steps == after.prediction.steps == NUM_DECODED
    assert after.total.loads + after.total.computed > before.total.loads + before.total.computed


@pytest.mark.parametrize("miss", ["bus", "cpu"])
def test_shared_steps_prefetch(miss: Miss) -> None:
    """With a set that never changes the bus is idle where the CPU computes what misses."""
    asked = ExpertConfig(miss=miss, resident="first-n")
    found, (_, after) = words(CpuDevice(), moe_slots=3, experts=asked)
    assert found == words_without_slots()
    assert contradiction(after) is None
    prediction = after.prediction
    assert prediction is not None
    assert 0 < prediction.right < prediction.guessed
    layers = len(after.layers) - 1
    assert prediction.used > prediction.predicted_steps * layers * after.experts_per_token
    assert (after.decode.prefetch_used > 0) == (miss == "cpu")
    assert after.decode.prefetched >= after.decode.prefetch_used
