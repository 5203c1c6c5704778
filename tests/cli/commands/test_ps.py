"""The table of `sharpi ps` fits a terminal of 80 columns, and loses no server's address."""

from types import SimpleNamespace

import pytest
from command_line import CommandLine

from sharpi.cli.commands import ps as ps_module
from sharpi.cli.output import tables
from sharpi.serve.host import running_servers as servers_module

URL = "http://127.0.0.1:42281"
SAID = {
    "state": "loaded",
    "answers_running": 3,
    "answers_waiting": 4,
    "tokens_per_second": 135.4,
    "resident_bytes": 249 << 20,
    "bytes_by_tier": {"ram": 118 << 20, "disk": 0},
    "idle_seconds": 130.0,
}


@pytest.fixture(autouse=True)
def servers(monkeypatch: pytest.MonkeyPatch) -> None:
    server = SimpleNamespace(pid=18326, url=URL, model="stories-moe", status_key="")
    monkeypatch.setattr(servers_module, "running_servers", lambda: [server])
    monkeypatch.setattr(ps_module, "_props", lambda server: SAID)


def test_a_pipe_has_every_column(sharpi: CommandLine) -> None:
    heading, row = sharpi("ps").out.splitlines()
    assert heading.split() == [
        "MODEL", "URL", "STATE", "ANSWERS", "TOKENS/S", "MEMORY", "IDLE", "PID", "TIERS"
    ]  # fmt: skip
    words = ["stories-moe", URL, "loaded", "3+4", "135.4", "249.0 MiB", "2 min", "18326"]
    assert all(word in row for word in [*words, "ram 118.0 MiB"])


def test_an_answer_without_tokens_waits_for_its_prompt(
    sharpi: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ps_module, "_props", lambda server: SAID | {"tokens_per_second": 0.0})
    assert "reads a prompt" in sharpi("ps").out
    monkeypatch.setattr(ps_module, "_props", lambda server: {"state": "silent"})
    assert "reads a prompt" not in sharpi("ps").out


def test_a_narrow_terminal_has_fewer_columns(
    sharpi: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_ANY_WIDTH", 80)
    lines = sharpi("ps").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert URL in lines[1]
    assert lines[2:] == ["(a wider terminal shows IDLE, TIERS too)"]
