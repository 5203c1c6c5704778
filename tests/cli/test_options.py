"""Every option of `run`: its flag, its variable, which of them wins, and malformed values."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import CommandLine
from fake_engine import FakeEngine
from typer.main import get_command

from sharpi.cli.main import app
from sharpi.config import GenerationRequest, RunConfig


class Case(NamedTuple):
    """`path` names the field that the option ends in, of config, request or sampling."""

    variable: str
    flag: list[str]
    from_flag: Any
    text: str
    from_variable: Any
    path: str
    malformed: tuple[str, ...] = ()


CASES = [
    Case("SHARPI_THREADS", ["-t", "3"], 3, "4", 4, "config.num_threads", ("0", "x", "9999", "1.5")),
    Case("SHARPI_THREADS_BATCH", ["-tb", "3"], 3, "4", 4, "config.num_batch_threads", ("-1", "x")),
    Case("SHARPI_BATCH_SIZE", ["-b", "32"], 32, "64", 64, "config.batch_size", ("0", "many")),
    Case(
        "SHARPI_PRECISION",
        ["--precision", "int8"],
        "int8",
        "f32",
        "f32",
        "config.precision",
        ("f16",),
    ),
    Case(
        "SHARPI_ISA",
        ["--isa", "avx2"],
        "avx2",
        "portable",
        "portable",
        "config.instruction_set",
        ("sse",),
    ),
    Case(
        "SHARPI_CTX_SIZE",
        ["-c", "99"],
        99,
        "77",
        77,
        "config.context_size",
        ("-5", "0", "4k", str(2**40)),
    ),
    Case(
        "SHARPI_CONTEXT_SHIFT",
        ["--no-context-shift"],
        False,
        "on",
        True,
        "config.context_shift",
        ("maybe",),
    ),
    Case("SHARPI_PREDICT", ["-n", "5"], 5, "6", 6, "request.max_tokens", ("-2", "x")),
    Case("SHARPI_STOP", ["--stop", "x y"], ("x y",), "a b,c", ("a b", "c"), "request.stop"),
    Case("SHARPI_IGNORE_EOS", ["--ignore-eos"], True, "yes", True, "request.ignore_end", ("2",)),
    Case(
        "SHARPI_TEMP",
        ["--temp", "0"],
        0.0,
        "1.5",
        1.5,
        "sampling.temperature",
        ("-1", "nan", "hot", "inf"),
    ),
    Case("SHARPI_TOP_K", ["--top-k", "7"], 7, "8", 8, "sampling.top_k", ("-1", "x")),
    Case(
        "SHARPI_TOP_P",
        ["--top-p", "0.5"],
        0.5,
        "0.25",
        0.25,
        "sampling.top_p",
        ("1.1", "-0.1", "nan"),
    ),
    Case("SHARPI_MIN_P", ["--min-p", "0.5"], 0.5, "0.25", 0.25, "sampling.min_p", ("1.1", "x")),
    Case(
        "SHARPI_REPEAT_PENALTY",
        ["--repeat-penalty", "1.1"],
        1.1,
        "1.3",
        1.3,
        "sampling.repeat_penalty",
        ("0", "-1", "inf"),
    ),
    Case(
        "SHARPI_REPEAT_LAST_N",
        ["--repeat-last-n", "-1"],
        -1,
        "32",
        32,
        "sampling.penalty_last_n",
        ("-2",),
    ),
    Case(
        "SHARPI_PRESENCE_PENALTY",
        ["--presence-penalty", "-1"],
        -1.0,
        "0.5",
        0.5,
        "sampling.presence_penalty",
        ("inf", "x"),
    ),
    Case(
        "SHARPI_FREQUENCY_PENALTY",
        ["--frequency-penalty", "1"],
        1.0,
        "0.5",
        0.5,
        "sampling.frequency_penalty",
        ("nan",),
    ),
    Case("SHARPI_SEED", ["-s", "42"], 42, "43", 43, "sampling.seed", ("-2", "x", str(2**40))),
]
MALFORMED = [(case, text) for case in CASES for text in case.malformed]
MALFORMED_VALUES = [each for each in MALFORMED if len(each[0].flag) == 2]  # not of switches


def asked(engine: FakeEngine, path: str) -> Any:
    request = engine.requests[-1]
    owners = {"config": engine.config, "request": request, "sampling": request.sampling}
    owner, name = path.split(".")
    return getattr(owners[owner], name)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.variable)
class TestEveryOption:
    def test_flag(self, sharpi: CommandLine, engine: FakeEngine, case: Case) -> None:
        assert sharpi("run", "m.gguf", "hi", *case.flag).exit_code == 0
        assert asked(engine, case.path) == case.from_flag

    def test_variable(
        self, sharpi: CommandLine, engine: FakeEngine, case: Case, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(case.variable, case.text)
        assert sharpi("run", "m.gguf", "hi").exit_code == 0
        assert asked(engine, case.path) == case.from_variable

    def test_flag_wins(
        self, sharpi: CommandLine, engine: FakeEngine, case: Case, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(case.variable, case.text)
        assert sharpi("run", "m.gguf", "hi", *case.flag).exit_code == 0
        assert asked(engine, case.path) == case.from_flag

    def test_help_shows_the_variable(self, sharpi: CommandLine, case: Case) -> None:
        assert case.variable in sharpi("run", "--help").out
        assert case.variable in sharpi("chat", "--help").out


@pytest.mark.parametrize(
    ("case", "text"), MALFORMED, ids=lambda each: getattr(each, "variable", each)
)
def test_malformed_variable_is_one_line_that_names_it(
    sharpi: CommandLine, engine: FakeEngine, case: Case, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(case.variable, text)
    result = sharpi("run", "m.gguf", "hi")
    assert result.exit_code == 2
    assert result.err.count("\n") == 1
    assert case.variable in result.err
    assert repr(text) in result.err
    assert engine.config is None


@pytest.mark.parametrize(
    ("case", "text"), MALFORMED_VALUES, ids=lambda each: getattr(each, "variable", each)
)
def test_malformed_flag_is_one_line_that_names_it(
    sharpi: CommandLine, engine: FakeEngine, case: Case, text: str
) -> None:
    result = sharpi("run", "m.gguf", "hi", case.flag[0], text)
    assert (result.exit_code, result.err.count("\n")) == (2, 1)
    assert case.flag[0] in result.err


def test_malformed_variable_does_not_matter_beside_a_flag(
    sharpi: CommandLine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARPI_TEMP", "warm")
    assert sharpi("run", "m.gguf", "hi", "--temperature", "0.5").exit_code == 0


def test_empty_variable_is_unset(
    sharpi: CommandLine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARPI_TEMP", "")
    sharpi("run", "m.gguf", "hi")
    assert engine.requests[-1] == GenerationRequest()


def test_defaults_are_those_of_the_config(sharpi: CommandLine, engine: FakeEngine) -> None:
    sharpi("run", "m.gguf", "hi")
    assert engine.config == RunConfig(model=Path("m.gguf"))
    assert engine.requests[-1] == GenerationRequest()


def test_stop_repeats_and_its_variable_has_one_per_line(
    sharpi: CommandLine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sharpi("run", "m.gguf", "hi", "--stop", "a,b", "--stop", "c")
    assert engine.requests[-1].stop == ("a,b", "c")
    monkeypatch.setenv("SHARPI_STOP", "User: a,b\nEnd\n")
    sharpi("run", "m.gguf", "hi")
    assert engine.requests[-1].stop == ("User: a,b", "End")


def test_every_flag_of_run_has_a_variable_in_its_help(sharpi: CommandLine) -> None:
    command = get_command(app).commands["run"]  # type: ignore[attr-defined]
    options = [each for each in command.params if each.param_type_name == "option"]
    unnamed = [each.opts for each in options if not each.envvar]
    assert unnamed == []
    text = sharpi("run", "--help").out
    assert [each.envvar for each in options if each.envvar not in text] == []
