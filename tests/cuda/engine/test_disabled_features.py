"""What `--disable` names is not used, and the answer stays what it was within rounding."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_device import CpuDevice

from sharpi.device.launch import Launch
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.sequence import Sequence
from sharpi.ops.cpu.library import INSTRUCTION_SETS
from sharpi.resources import demo_model
from sharpi.settings import FEATURES, ExpertConfig, RunConfig

pytestmark = pytest.mark.native
IDS = [1, *np.random.default_rng(3).integers(3, 2000, 33).tolist()]  # enough for tensor cores
MODEL = demo_model()
REFERENCES = Path(__file__).parents[2] / "references" / "data"
USES = {"graphs": "record", "fused-attention": "attend", "tensor-cores": "matmul"}


class CountingCpuDevice(CpuDevice):
    """Counts the calls that the features make."""

    def __init__(self, attends: bool = True) -> None:
        super().__init__(check=False, attends=attends)
        self.calls: Counter[str] = Counter()

    def launch(self, launch: Launch) -> None:
        self.calls[launch.kernel.file] += 1
        self.calls["dependent"] += launch.is_dependent
        super().launch(launch)

    def __getattribute__(self, name: str) -> Any:
        if name in USES.values():
            self.calls[name] += 1
        return super().__getattribute__(name)


def run(
    *disabled: Any, attends: bool = True, model: Path = MODEL, **options: Any
) -> tuple[np.ndarray, Counter[str]]:
    """Returns the logits after a prompt and four tokens, and the calls that were made for them."""
    device = CountingCpuDevice(attends)
    config = RunConfig(
        model=model,
        device="cuda",
        context_size=128,
        batch_size=48,
        disabled=disabled,
        **options,
    )
    engine = load_engine(config, open_device=lambda _: device)
    sequence = Sequence(engine.runner)
    prompt = [token % engine.runner.vocab_size for token in IDS]
    device.calls.clear()
    logits = [sequence.extend(prompt), *(sequence.extend([token]) for token in (5, 6, 7, 8))]
    engine.close()
    return np.stack(logits), device.calls


@pytest.fixture(scope="module")
def with_everything() -> tuple[np.ndarray, Counter[str]]:
    return run()


@pytest.mark.parametrize("feature", USES)
def test_a_feature_of_the_gpu_is_not_used(
    feature: Any, with_everything: tuple[np.ndarray, Counter[str]]
) -> None:
    expected, calls = with_everything
    logits, without = run(feature)
    assert calls[USES[feature]] > 0
    assert without[USES[feature]] == 0
    assert [without[use] > 0 for use in USES.values() if use != USES[feature]] == [True, True]
    error = np.linalg.norm(logits - expected, axis=-1) / np.linalg.norm(expected, axis=-1)
    assert np.median(error) < 0.02
    if feature == "graphs":
        np.testing.assert_array_equal(logits, expected)


def test_launches_are_folded(with_everything: tuple[np.ndarray, Counter[str]]) -> None:
    """One folded launch gives the same bits as several launches."""
    expected, together = with_everything
    logits, apart = run("folding")
    assert sum(together.values()) < sum(apart.values())
    assert together["attention_merge"] == 0 < apart["attention_merge"]
    np.testing.assert_array_equal(logits, expected)


def test_launches_begin_early(with_everything: tuple[np.ndarray, Counter[str]]) -> None:
    """Nearly all launches of a token begin early."""
    expected, together = with_everything
    logits, apart = run("programmatic-launches")
    assert apart["dependent"] == 0 < together["dependent"]
    np.testing.assert_array_equal(logits, expected)


def test_without_a_fused_kernel_the_librarys_attention_is_not_called(
    with_everything: tuple[np.ndarray, Counter[str]],
) -> None:
    """Nothing falls back to a mask: sharpi's own kernels compute instead."""
    expected, everything = with_everything
    assert everything["tiled_attention"] == 0
    for disabled in ((), ("tensor-cores",)):
        logits, calls = run(*disabled, attends=False)
        assert calls["attend"] == 0
        assert (calls["matmul"] > 0) == (not disabled)
        assert (calls["tiled_attention"] > 0) == (not disabled)
        error = np.linalg.norm(logits - expected, axis=-1) / np.linalg.norm(expected, axis=-1)
        assert np.median(error) < 0.02


def on_cpu(*disabled: Any, **options: Any) -> Engine:
    config = RunConfig(
        model=demo_model(), device="cpu", context_size=64, disabled=disabled, **options
    )
    engine = load_engine(config)
    engine.close()
    return engine


@pytest.mark.parametrize(
    ("feature", "others"), [("vnni", INSTRUCTION_SETS[:2]), ("vbmi", INSTRUCTION_SETS[:1])]
)
def test_instructions_are_not_used(feature: Any, others: tuple[str, ...]) -> None:
    engine = on_cpu(feature)
    assert engine.runner.settings.instruction_set not in others


def test_prefetch_is_not_used() -> None:
    config = RunConfig(
        model=demo_model(), context_size=64, moe_slots=4, disabled=("prefetch",),
        experts=ExpertConfig(prefetch=False),
    )  # fmt: skip
    engine = load_engine(config)
    stats = engine.expert_stats()
    engine.close()
    assert stats is not None
    assert stats.prediction is None


def test_every_feature_is_tested_here() -> None:
    others = {"folding", "programmatic-launches", "vnni", "vbmi", "prefetch"}
    assert set(FEATURES) == {*USES, *others}


def test_allocations_are_printed(capfd: pytest.CaptureFixture[str]) -> None:
    run(trace_vram=True, model=REFERENCES / "qwen3moe.gguf")
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("vram: ")]
    shape = r"vram: [+-] [\d.]+ \w+ \w+; [\d.]+ \w+ allocated, [\d.]+ \w+ free"
    assert lines
    assert all(re.fullmatch(shape, line) for line in lines)
    assert any(" gpu_weights;" in line for line in lines)
