"""The line at the bottom of a chat: it fits the terminal, whatever the model is called."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sharpi.cli.chat.chat import status_line

CONVERSATION: Any = SimpleNamespace(
    model=Path("Qwen3-Coder-30B-A3B-Instruct-UD-Q4_K_XL.gguf"),
    num_tokens=12_345,
    context_size=32_768,
    timings=SimpleNamespace(decode_tokens_per_second=25.0),
)
NUMBERS = " · 12345 of 32768 tokens · 25.0 tokens/s"


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        (120, "Qwen3-Coder-30B-A3B-Instruct-UD-Q4_K_XL"),
        (60, "Qwen3-Coder-30B..."),
        (20, "Qwen3..."),
    ],
)
def test_a_long_name_is_cut(monkeypatch: pytest.MonkeyPatch, columns: int, name: str) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    line = status_line(CONVERSATION)
    assert line == f" {name}{NUMBERS}"
    assert len(line) < max(columns, 50)
