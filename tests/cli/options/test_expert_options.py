"""Effects and contradictions of the options for memory and experts."""

from pathlib import Path
from typing import get_args

import pytest
from command_line import CommandLine
from fake_engine import FakeEngine

from sharpi.experts.native.feed import PREDICTORS
from sharpi.experts.policy_settings import POLICIES
from sharpi.settings import ExpertConfig
from sharpi.settings.experts import Policy, Predictor

RUN = ("run", "m.gguf", "hi")


def test_the_names_are_those_of_the_policies_and_predictors() -> None:
    assert set(get_args(Policy)) == set(POLICIES)
    assert set(PREDICTORS) < set(get_args(Predictor))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--moe-resident", "first-n"), ExpertConfig(policy="static", resident="first-n")),
        (
            ("--moe-resident-ids", "0-3"),
            ExpertConfig(policy="static", resident="ids", resident_ids="0-3"),
        ),
        (
            ("--moe-resident", "ids", "--moe-resident-ids", "5", "--moe-policy", "static"),
            ExpertConfig(policy="static", resident="ids", resident_ids="5"),
        ),
        (
            ("--moe-load-budget", "3", "--moe-policy", "learned-prefetch"),
            ExpertConfig(policy="learned-prefetch", load_budget=3.0),
        ),
        (("--moe-predictor", "learned"), ExpertConfig(predictor="learned")),
        (
            ("--moe-predict-prefetch", "--moe-predictor", "both"),
            ExpertConfig(predictor="both"),
        ),
    ],
)
def test_what_follows(
    sharpi: CommandLine, engine: FakeEngine, flags: tuple[str, ...], expected: ExpertConfig
) -> None:
    assert sharpi(*RUN, *flags).exit_code == 0
    assert engine.config.experts == expected


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "static"])
def test_a_fixed_set_needs_the_static_policy(
    sharpi: CommandLine, engine: FakeEngine, policy: str
) -> None:
    refused(sharpi, engine, "--moe-resident", "first-n", "--moe-policy", policy)
    refused(sharpi, engine, "--moe-resident-ids", "1,2", "--moe-policy", policy)


@pytest.mark.parametrize(
    "flags",
    [
        ("--moe-resident", "first-n", "--moe-resident-ids", "1"),
        ("--moe-resident", "frequency", "--moe-resident-ids", "1"),
        ("--no-moe-predict-prefetch", "--moe-predictor", "both"),
        ("--moe-load-budget", "3", "--moe-policy", "slru"),
        ("--moe-load-budget", "3", "--moe-policy", "static"),
        ("--moe-load-budget", "3", "--moe-resident", "first-n"),
        ("--moe-predictor", "learned", "--moe-policy", "lru"),
        ("--moe-predictor", "learned", "--moe-resident", "first-n"),
        ("--cpu-moe", "--n-cpu-moe", "2"),
        ("--cpu-moe", "--moe-miss", "load"),
        ("--cpu-moe", "--moe-miss", "stream"),
        ("--no-moe-paged-stash", "--moe-paged-stash-page-size", "32"),
        ("--no-moe-paged-stash", "--moe-paged-stash-gpu-factor", "1"),
        ("--no-moe-paged-stash", "--moe-paged-stash-cpu-factor", "1"),
        ("--device", "cpu", "--vram", "1G"),
        ("--device", "cpu", "--gpu-layers", "1"),
        ("--expert-stats", "same", "--moe-trace", "same"),
        ("--device", "cuda:0,1", "--vram", "1GiB,1GiB,1GiB"),
        ("--device", "cuda:0", "--vram", "1GiB,1GiB"),
        ("--device", "cuda:0,1", "--tensor-split", "1,1,1"),
        ("--vram", "1GiB,1GiB", "--tensor-split", "1,1,1"),
        ("--device", "cpu", "--tensor-split", "1,1"),
        ("--moe-trace", "same", "--moe-profile", "same"),
    ],
)
def test_contradictions(sharpi: CommandLine, engine: FakeEngine, flags: tuple[str, ...]) -> None:
    refused(sharpi, engine, *flags)


def refused(sharpi: CommandLine, engine: FakeEngine, *flags: str) -> None:
    """Asserts an error on one line with the names of all flags, before anything is loaded."""
    result = sharpi(*RUN, *flags)
    assert (result.exit_code, result.out, result.err.count("\n")) == (2, "", 1)
    assert all(flag in result.err for flag in flags if flag.startswith("--"))
    assert engine.config is None


def test_ids_that_are_not_given(sharpi: CommandLine, engine: FakeEngine) -> None:
    refused(sharpi, engine, "--moe-resident", "ids")
    assert "--moe-resident-ids" in sharpi(*RUN, "--moe-resident", "ids").err


def test_a_contradiction_with_a_variable_names_it(
    sharpi: CommandLine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARPI_MOE_POLICY", "lru")
    refused(sharpi, engine, "--moe-resident", "first-n")
    assert "SHARPI_MOE_POLICY" in sharpi(*RUN, "--moe-resident", "first-n").err
    monkeypatch.setenv("SHARPI_MOE_PREDICT_PREFETCH", "0")
    monkeypatch.setenv("SHARPI_MOE_PREDICTOR", "both")
    result = sharpi(*RUN)
    assert "SHARPI_MOE_PREDICT_PREFETCH and SHARPI_MOE_PREDICTOR" in result.err


def test_a_variable_that_a_flag_beats_contradicts_nothing(
    sharpi: CommandLine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARPI_MOE_POLICY", "lru")
    assert sharpi(*RUN, "--moe-resident", "first-n", "--moe-policy", "static").exit_code == 0


@pytest.mark.parametrize("miss", ["cpu", "auto"])
def test_all_experts_on_the_cpu_leave_one_miss_mode(
    sharpi: CommandLine, engine: FakeEngine, miss: str
) -> None:
    assert sharpi(*RUN, "--cpu-moe", "--moe-miss", miss).exit_code == 0
    assert (engine.config.cpu_moe, engine.config.experts.miss) == (True, miss)


def test_sizes_of_a_stash_from_the_environment(
    sharpi: CommandLine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes have no effect without the stash, and are named if it is refused."""
    monkeypatch.setenv("SHARPI_MOE_PAGED_STASH_PAGE_SIZE", "32")
    assert sharpi(*RUN).exit_code == 0
    assert not engine.config.experts.paged_stash
    result = sharpi(*RUN, "--no-moe-paged-stash")
    assert result.exit_code == 2
    assert "--no-moe-paged-stash and SHARPI_MOE_PAGED_STASH_PAGE_SIZE" in result.err


@pytest.mark.parametrize("flag", ["--expert-stats", "--moe-trace", "--moe-profile"])
def test_the_model_is_not_written_over(
    sharpi: CommandLine, engine: FakeEngine, tmp_path: Path, flag: str
) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    result = sharpi("run", str(model), "hi", flag, str(tmp_path / "." / "m.gguf"))
    assert (result.exit_code, result.err.count("\n")) == (2, 1)
    assert flag in result.err
    assert engine.config is None


@pytest.mark.parametrize("command", ["run", "chat", "serve", "bench", "perplexity", "logits"])
def test_every_command_with_an_engine_has_them(sharpi: CommandLine, command: str) -> None:
    text = sharpi(command, "--help").out
    names = (
        *("--ram", "--moe-slots", "--moe-policy", "--moe-predictor", "--expert-stats"),
        *("--moe-miss", "--moe-capacity-factor", "--moe-paged-stash"),
    )
    assert [name for name in names if name not in text] == []
