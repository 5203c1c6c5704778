"""A limit of rows for routed tokens gives the same bits, with a second pass if it is too small."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpi.device.device import Device
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.sequence import Sequence
from sharpi.ops.cuda.gpu_weights import GpuStates
from sharpi.ops.cuda.recorded import PassCounts, RoutedRows
from sharpi.settings import ExpertConfig, RunConfig

Load = Callable[..., Engine]
Expected = Callable[[str, int | None], np.ndarray]

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[2] / "references" / "data"
KINDS = ["qwen3moe", "gpt-oss", "llama4", "qwen3next", "gemma4-moe"]
BATCH = 12  # rows for nine tokens there are always
NUM_TOKENS = 36


def tokens_of(case: str) -> list[int]:
    with np.load(REFERENCES / f"{case}.npz") as arrays:
        ids: list[int] = arrays["tokens"].tolist()
    return (ids * NUM_TOKENS)[:NUM_TOKENS]


def answers(engine: Engine, case: str) -> np.ndarray:
    """Returns the logits after two prompts and one more token, which reads their KV cache."""
    sequence, ids = Sequence(engine.runner), tokens_of(case)
    logits = [sequence.extend(part).copy() for part in (ids[:24], ids[24:35], ids[35:])]
    sequence.truncate(0)
    return np.stack(logits)


def counts(engine: Engine) -> PassCounts:
    found: PassCounts = engine.runner.parts[-1]._prompts.counts  # type: ignore[attr-defined]
    return found


def options(slots: int | None, factor: float | None) -> dict[str, Any]:
    experts = ExpertConfig(miss="bus", capacity_factor=factor)
    return {"context_size": 64, "batch_size": BATCH, "moe_slots": slots, "experts": experts}


def limited(load: Load, case: str, slots: int | None) -> Engine:
    return load(REFERENCES / f"{case}.gguf", **options(slots, 0.5))


@pytest.fixture(scope="module")
def expected(device: Device) -> Expected:
    """Returns the answers without a limit, which are computed once for each model and its slots."""

    @cache
    def without_limit(case: str, slots: int | None) -> np.ndarray:
        model = REFERENCES / f"{case}.gguf"
        config = RunConfig(model=model, device="cuda", **options(slots, None))
        with load_engine(config, open_device=lambda _: device) as engine:
            return answers(engine, case)

    return without_limit


@pytest.mark.parametrize("slots", [None, 2])
@pytest.mark.parametrize("case", KINDS)
def test_bits(case: str, slots: int | None, load: Load, expected: Expected) -> None:
    engine = limited(load, case, slots)
    assert np.array_equal(answers(engine, case), expected(case, slots))
    assert counts(engine).limited == (3 if slots is None else 2)


@pytest.mark.parametrize("slots", [None, 2])
def test_a_pass_with_too_few_rows_is_run_again(
    slots: int | None, load: Load, expected: Expected, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All experts as one group need more than its rows; recurrent states are taken back."""
    wanted_logits = expected("qwen3next", slots)
    monkeypatch.setattr(RoutedRows, "experts_at_once", lambda _, num_experts: num_experts)
    engine = limited(load, "qwen3next", slots)
    assert np.array_equal(answers(engine, "qwen3next"), wanted_logits)
    wanted = PassCounts(limited=3, reruns=3)
    if slots is not None:  # of the shorter prompt fewer experts come at a time, and there are rows
        wanted = PassCounts(by_layer=1, limited=2, reruns=1)
    assert counts(engine) == wanted


def test_the_statistics_say_what_a_full_batch_needs(load: Load) -> None:
    """Half of it does not do; rows for nine tokens there are always."""
    num_tokens = 128

    def after_a_batch(factor: float | None) -> Engine:
        experts = ExpertConfig(miss="bus", capacity_factor=factor, stats=Path("/dev/null"))
        asked = options(None, None) | {
            "context_size": num_tokens,
            "batch_size": num_tokens,
            "experts": experts,
        }
        engine = load(REFERENCES / "qwen3moe.gguf", **asked)
        Sequence(engine.runner).extend((tokens_of("qwen3moe") * 4)[:num_tokens])
        return engine

    stats = after_a_batch(None).expert_stats()
    assert stats is not None
    assert stats.skew is not None
    needed = stats.skew.capacity_factor
    assert counts(after_a_batch(needed)) == PassCounts(limited=1)
    assert needed / 2 > 9 / num_tokens
    assert counts(after_a_batch(needed / 2)) == PassCounts(limited=1, reruns=1)


@pytest.mark.parametrize("fault", ["flag", "state"])
def test_what_is_not_done_would_be_seen(
    fault: str, load: Load, expected: Expected, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted_logits = expected("qwen3next", None)
    monkeypatch.setattr(RoutedRows, "experts_at_once", lambda _, num_experts: num_experts)
    nothing: Callable[..., None] = lambda *_: None  # noqa: E731
    if fault == "state":
        monkeypatch.setattr(GpuStates, "restore", nothing)
    else:
        monkeypatch.setattr(RoutedRows, "_is_over", nothing)
    engine = limited(load, "qwen3next", None)
    assert not np.array_equal(answers(engine, "qwen3next"), wanted_logits)
