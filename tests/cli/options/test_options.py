"""Every option of `run`: its flag, its variable, their precedence, and malformed values."""

from pathlib import Path
from typing import Any

import click
import pytest
from command_line import CommandLine
from expert_option_cases import CASES as EXPERT_CASES
from fake_engine import FakeEngine
from option_cases import CASES as GENERAL_CASES
from option_cases import Case

from sharpi.cli.main import make_app
from sharpi.cli.parsing.variables import variables_of
from sharpi.config import USUAL_DRAFTS, GenerationRequest, RunConfig

CASES = GENERAL_CASES + EXPERT_CASES
MALFORMED = [(case, text) for case in CASES for text in case.malformed]
MALFORMED_VALUES = [each for each in MALFORMED if len(each[0].flag) == 2]  # not of switches


def asked(engine: FakeEngine, path: str) -> Any:
    request = engine.requests[-1]
    owners = {
        "config": engine.config,
        "experts": engine.config.experts,
        "speculation": engine.config.speculation,
        "request": request,
        "sampling": request.sampling,
        "rope": engine.config.rope,
    }
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
    assert repr(text)[:50] in result.err
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
    assert engine.config == RunConfig(model=Path("m.gguf"), speculation=USUAL_DRAFTS)
    assert engine.requests[-1] == GenerationRequest()


def test_stop_repeats_and_its_variable_has_one_per_line(
    sharpi: CommandLine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sharpi("run", "m.gguf", "hi", "--stop", "a,b", "--stop", "c")
    assert engine.requests[-1].stop == ("a,b", "c")
    monkeypatch.setenv("SHARPI_STOP", "User: a,b\nEnd\n")
    sharpi("run", "m.gguf", "hi")
    assert engine.requests[-1].stop == ("User: a,b", "End")


def test_every_flag_of_run_has_a_variable_that_is_documented() -> None:
    command = make_app().get_command(click.Context(make_app()), "run")
    assert command is not None
    options = [each for each in command.params if hasattr(each, "field") and each.opts[0][0] == "-"]
    unnamed = [each.opts for each in options if not each.envvar]
    assert unnamed == []
    text = (Path(__file__).parents[3] / "docs" / "flags.md").read_text("utf-8")
    assert [each.opts for each in options if not all(v in text for v in variables_of(each))] == []
