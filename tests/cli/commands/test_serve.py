"""The command line of `serve`: its options, their variables, and contradictions."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine

from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.resources import demo_model
from sharpi.settings import RunConfig
from sharpi.settings.serving import ServeOptions

FLAGS = Path(__file__).parents[3] / "docs/flags.md"


@dataclass
class Served:
    """The arguments with which the command would have served."""

    hosts: list[Any] = field(default_factory=list)
    options: list[ServeOptions] = field(default_factory=list)
    configs: list[RunConfig] = field(default_factory=list)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    """Replaces loading and listening by a record of the arguments."""
    found = Served()

    def note(host: Any, options: ServeOptions, listener: Any, log: Any) -> None:
        found.hosts.append(host)
        found.options.append(options)

    def load(config: RunConfig, on_progress: Any, share: Any = None) -> Engine:
        found.configs.append(config)
        return load_engine(RunConfig(model=demo_model()))

    monkeypatch.setattr("sharpi.cli.commands.server.serve_until_stopped", note)
    monkeypatch.setattr("sharpi.engine.loader.load_engine", load)
    monkeypatch.setattr("sharpi.serve.host.hosted_model.Scheduler", lambda engine, parallel: None)
    monkeypatch.setenv("SHARPI_PORT", "0")
    return found


CASES = [
    ("SHARPI_HOST", ["--host", "localhost"], "localhost", "127.0.0.1", "127.0.0.1", "host"),
    ("SHARPI_PARALLEL", ["--parallel", "2"], 2, "3", 3, "parallel"),
    ("SHARPI_QUEUE", ["--queue", "0"], 0, "5", 5, "queue"),
    (
        "SHARPI_API_KEY",
        ["--api-key", "a", "--api-key", "b"],
        ("a", "b"),
        "c d",
        ("c", "d"),
        "api_key",
    ),
    ("SHARPI_ALIAS", ["--alias", "x"], ("x",), "y", ("y",), "alias"),
    ("SHARPI_IDLE_UNLOAD", ["--idle-unload", "5"], 5.0, "0.5", 0.5, "idle_unload"),
    ("SHARPI_MAX_BODY", ["--max-body", "1MiB"], 1 << 20, "5k", 5000, "max_body"),
    ("SHARPI_GRACE", ["--grace", "1"], 1.0, "2", 2.0, "grace"),
    (
        "SHARPI_CORS_ORIGIN",
        ["--cors-origin", "*"],
        ("*",),
        "http://a",
        ("http://a",),
        "cors_origin",
    ),
    ("SHARPI_LOG_REQUESTS", ["--log-requests"], True, "on", True, "log_requests"),
]


@pytest.mark.parametrize(
    ("variable", "flag", "from_flag", "text", "from_variable", "name"), CASES, ids=lambda x: str(x)
)
def test_every_option_and_its_variable(
    sharpi: CommandLine,
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    flag: list[str],
    from_flag: Any,
    text: str,
    from_variable: Any,
    name: str,
) -> None:
    monkeypatch.setenv(variable, text)
    assert sharpi("serve").exit_code == 0
    assert sharpi("serve", *flag).exit_code == 0
    values = [getattr(options, name) for options in served.options]
    assert values == [from_variable, from_flag]
    assert f"`{variable}`" in FLAGS.read_text("utf-8")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--port", "70000"],
        ["--port", "x"],
        ["--parallel", "0"],
        ["--queue", "-1"],
        ["--idle-unload", "-1"],
        ["--idle-unload", "nan"],
        ["--max-body", "much"],
        ["--api-key", ""],
        ["--api-key", " a"],
        ["--api-key", "schlüssel"],
        ["--grace", "-1"],
    ],
)
def test_malformed_values_are_one_line_that_names_the_flag(
    sharpi: CommandLine, served: Served, arguments: list[str]
) -> None:
    result = sharpi("serve", *arguments)
    assert (result.exit_code, result.err.count("\n")) == (2, 1)
    assert arguments[0] in result.err
    assert served.options == []


def test_engine_flags_reach_the_engine(sharpi: CommandLine, served: Served) -> None:
    flags = ["-c", "99", "--moe-slots", "3", "--moe-policy", "lru", "-t", "2", "-np", "7"]
    assert sharpi("serve", "m.gguf", *flags).exit_code == 0
    (config,) = served.configs
    assert config.model == Path("m.gguf")
    assert (config.context_size, config.moe_slots, config.num_threads) == (99, 3, 2)
    assert (config.experts.policy, config.num_parallel) == ("lru", 7)


def test_names_and_sampling_of_the_host(sharpi: CommandLine, served: Served) -> None:
    sharpi("serve", "m.gguf", "--alias", "big", "--temp", "0.1", "--idle-unload", "2")
    settings = served.hosts[0].settings
    assert (settings.model_id, settings.aliases) == ("big", ("m",))
    assert settings.sampling.temperature == 0.1
    assert settings.idle_seconds == 120


def test_defaults(sharpi: CommandLine, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    sharpi("serve")
    (options,) = served.options
    assert (options.host, options.parallel, options.api_key) == ("127.0.0.1", 4, ())
    settings = served.hosts[0].settings
    assert (settings.model_id, settings.idle_seconds) == ("stories-moe", None)
    assert "default: 8080" in sharpi("serve", "--help").out


@pytest.mark.parametrize("record", ["--expert-stats", "--moe-trace"])
def test_records_that_reloading_would_lose_are_refused(
    sharpi: CommandLine, served: Served, record: str
) -> None:
    result = sharpi("serve", "--idle-unload", "5", record, "file")
    assert (result.exit_code, result.err.count("\n")) == (2, 1)
    assert "--idle-unload" in result.err
    assert record in result.err
