"""`sharpi perplexity`: the printed figure, and texts it cannot score."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CommandLine
from fake_engine import FakeEngine


@pytest.fixture
def engine_of_even_odds(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """Returns an engine that gives 300 tokens equal probability, so the perplexity is 300."""

    def logits(ids: Any, num_prompt_tokens: int = 0) -> Any:
        return np.zeros((len(ids), 300), np.float32)

    monkeypatch.setattr(engine, "logits", logits)
    return engine


def test_figure_on_stdout(
    sharpi: CommandLine, engine_of_even_odds: FakeEngine, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("x" * 100)
    result = sharpi("perplexity", "m.gguf", "-f", str(tmp_path / "text"), "-c", "16")
    assert result.out == "perplexity 300.0000 +/- 0.0000 (6 windows of 16)\n"
    assert result.err == ""
    assert engine_of_even_odds.config.context_size == 16


def test_json(sharpi: CommandLine, engine_of_even_odds: FakeEngine) -> None:
    result = sharpi("perplexity", "m.gguf", "-f", "-", "-c", "16", "--json", stdin="x" * 64)
    record = json.loads(result.out)
    assert record["perplexity"] == pytest.approx(300)
    assert record["nll"] == pytest.approx(math.log(300))
    assert (record["windows"], record["window_size"]) == (4, 16)


def test_another_type_is_compared_with_f16(
    sharpi: CommandLine, engine_of_even_odds: FakeEngine
) -> None:
    """The fake engine computes the same with every type."""
    args = ("perplexity", "m.gguf", "-f", "-", "-c", "16", "-ctv", "q4_0")
    lines = sharpi(*args, stdin="x" * 64).out.splitlines()
    assert lines[1] == (
        "against f16 keys and values, of perplexity 300.0000: KL divergence 0.000000,"
        " first choice the same for 100.00 % of 28 tokens"
    )
    record = json.loads(sharpi(*args, "--json", stdin="x" * 64).out)
    assert (record["kl_divergence"], record["same_first_choice"]) == (0, 1)


def test_too_short_a_text(sharpi: CommandLine, engine_of_even_odds: FakeEngine) -> None:
    result = sharpi("perplexity", "m.gguf", "-f", "-", stdin="short")
    assert (result.exit_code, result.out, result.err.count("\n")) == (2, "", 1)


def test_missing_text(sharpi: CommandLine, engine: FakeEngine, tmp_path: Path) -> None:
    result = sharpi("perplexity", "m.gguf", "-f", str(tmp_path / "none"))
    assert (result.exit_code, result.err.count("\n")) == (2, 1)
    assert engine.config is None


def test_window_is_checked(sharpi: CommandLine, engine: FakeEngine) -> None:
    assert sharpi("perplexity", "m.gguf", "-f", "-", "-c", "3", stdin="x").exit_code == 2
