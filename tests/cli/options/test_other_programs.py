"""The flags of llama.cpp, vLLM and SGLang do the same, or one line says what to use."""

import tomllib
from pathlib import Path

import pytest
from command_line import CommandLine
from fake_engine import FakeEngine

from sharpi.cli import other_programs
from sharpi.cli.program import load_command
from sharpi.hub.catalogue import ModelName

_TABLE = tomllib.loads(Path(other_programs.__file__).with_suffix(".toml").read_text("utf-8"))


def test_every_row_names_flags_of_sharpi() -> None:
    commands = ("run", "chat", "serve", "bench", "plan", "doctor", "inspect", "list", "perplexity")
    options = [each for command in commands for each in load_command(command).params]
    own = {name for each in options for name in (*each.opts, *each.secondary_opts)}
    for text in [text for section in _TABLE.values() for text in section.values()]:
        flags = {word.strip("().,;`") for word in text.split() if word.startswith("--")}
        assert flags - own == set(), text
    names = [
        n for section in _TABLE.values() for key in section for n in key.split() if n[0] == "-"
    ]
    assert len(names) == len(set(names))


def test_flags_that_mean_the_same(sharpi: CommandLine, engine: FakeEngine) -> None:
    flags = ("-ub", "64", "-b", "2048", "--no-mmap", "--max-model-len=256", "-no-cnv", "-ngl", "0")
    result = sharpi("run", "m.gguf", "hi", *flags, "--enforce-eager")
    assert result.exit_code == 0
    assert "note: -ub is read as --batch-size\n" in result.err
    config = engine.config
    assert (config.batch_size, config.load, config.context_size) == (64, "copy", 256)
    assert (config.disabled, config.gpu_layers) == (("graphs",), 0)
    assert engine.prompt_text() == "hi"


@pytest.mark.parametrize("flag", ["-hf", "-hfr", "--hf-repo"])
def test_a_name_of_the_hub_is_fetched(
    sharpi: CommandLine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    fetched: list[ModelName] = []

    def fetch(name: ModelName) -> None:
        fetched.append(name)
        raise KeyboardInterrupt

    monkeypatch.setattr("sharpi.cli.model_path.fetch", fetch)
    assert sharpi("run", flag, "org/repo:Q4_K_M", "-p", "hi").exit_code == 130
    assert fetched == [ModelName("org/repo", "Q4_K_M")]
    assert f"there is no option {flag}" in sharpi("inspect", flag, "org/repo").err


def test_flags_without_effect(sharpi: CommandLine, engine: FakeEngine) -> None:
    for flags in (("-fa", "on"), ("-fa",), ("--jinja",), ("--mlock",), ("-sm", "row"), ("-co",)):
        result = sharpi("run", "m.gguf", "--raw", *flags, "hi")
        assert (result.exit_code, engine.prompt_text()) == (0, "hi")
        assert result.err.startswith(f"note: {flags[0]} has no effect: ")


@pytest.mark.parametrize(
    ("flags", "advice"),
    [
        (("-ot", "exps=CPU"), "--cpu-moe"),
        (("--override-tensor=exps=CPU",), "--cpu-moe"),
        (("--gpu-memory-utilization", "0.9"), "--vram"),
        (("--lora", "a.gguf"), "no adapters"),
        (("--mmproj-url", "x"), "text alone"),
        (("-ub",), "needs a value"),
    ],
)
def test_flags_that_are_refused(
    sharpi: CommandLine, engine: FakeEngine, flags: tuple[str, ...], advice: str
) -> None:
    result = sharpi("run", "m.gguf", "hi", *flags)
    assert (result.exit_code, result.out, result.err.count("\n")) == (2, "", 1)
    assert flags[0].partition("=")[0] in result.err
    assert advice in result.err


def test_values_and_words_are_not_flags(sharpi: CommandLine, engine: FakeEngine) -> None:
    for given in (("-p", "-fa"), ("--", "-fa")):
        assert sharpi("run", "m.gguf", "--raw", *given).err.count("note") == 0
        assert engine.prompt_text() == "-fa"


def test_flags_before_the_command(sharpi: CommandLine) -> None:
    result = sharpi("-hf", "org/repo")
    assert result.exit_code == 2
    assert "name a command before -hf, as in `sharpi run -hf`" in result.err
