"""A limit of rows for routed tokens gives the same bits, with a second pass if it is too small."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpi.config import ExpertConfig
from sharpi.engine.engine import Engine
from sharpi.engine.sequence import Sequence
from sharpi.ops.cuda.gpu_states import GpuStates
from sharpi.ops.cuda.pass_counts import PassCounts
from sharpi.ops.cuda.routed_rows import RoutedRows

Load = Callable[..., Engine]

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[2] / "references" / "data"
KINDS = ["qwen3moe", "gpt-oss", "llama4", "qwen3next", "gemma4-moe"]
BATCH = 12  # rows for nine tokens there are always


def tokens_of(case: str, count: int) -> list[int]:
    with np.load(REFERENCES / f"{case}.npz") as arrays:
        ids: list[int] = arrays["tokens"].tolist()
    return (ids * count)[:count]


def answers(engine: Engine, ids: list[int]) -> np.ndarray:
    """Returns the logits after two prompts and one more token, which reads their KV cache."""
    sequence = Sequence(engine.runner)
    logits = [sequence.extend(part).copy() for part in (ids[:24], ids[24:35], ids[35:])]
    sequence.truncate(0)
    return np.stack(logits)


def counts(engine: Engine) -> PassCounts:
    found: PassCounts = engine.runner.parts[-1]._prompts.counts  # type: ignore[attr-defined]
    return found


def loaded(load: Load, case: str, factor: float | None, **options: Any) -> Engine:
    experts = ExpertConfig(miss="stream", capacity_factor=factor)
    usual = {"context_size": 64, "batch_size": BATCH, "experts": experts}
    return load(REFERENCES / f"{case}.gguf", **(usual | options))


@pytest.mark.parametrize("slots", [None, 2])
@pytest.mark.parametrize("case", KINDS)
def test_bits(case: str, slots: int | None, load: Load) -> None:
    ids = tokens_of(case, 36)
    expected = answers(loaded(load, case, None, moe_slots=slots), ids)
    engine = loaded(load, case, 0.5, moe_slots=slots)
    assert np.array_equal(answers(engine, ids), expected)
    assert counts(engine).limited == (3 if slots is None else 2)


@pytest.mark.parametrize("slots", [None, 2])
def test_a_pass_with_too_few_rows_is_run_again(
    slots: int | None, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All experts as one group need more than its rows; recurrent states are taken back."""
    ids = tokens_of("qwen3next", 36)
    expected = answers(loaded(load, "qwen3next", None, moe_slots=slots), ids)
    monkeypatch.setattr(RoutedRows, "experts_at_once", lambda _, num_experts: num_experts)
    engine = loaded(load, "qwen3next", 0.5, moe_slots=slots)
    assert np.array_equal(answers(engine, ids), expected)
    wanted = PassCounts(limited=3, reruns=3)
    if slots is not None:  # of the shorter prompt fewer experts come at a time, and there are rows
        wanted = PassCounts(by_layer=1, limited=2, reruns=1)
    assert counts(engine) == wanted


@pytest.mark.parametrize("fault", ["flag", "state"])
def test_what_is_not_done_would_be_seen(
    fault: str, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = tokens_of("qwen3next", 36)
    expected = answers(loaded(load, "qwen3next", None), ids)
    monkeypatch.setattr(RoutedRows, "experts_at_once", lambda _, num_experts: num_experts)
    nothing: Callable[..., None] = lambda *_: None  # noqa: E731
    if fault == "state":
        monkeypatch.setattr(GpuStates, "restore", nothing)
    else:
        monkeypatch.setattr(RoutedRows, "_is_over", nothing)
    assert not np.array_equal(answers(loaded(load, "qwen3next", 0.5), ids), expected)
