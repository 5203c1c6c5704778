"""SHARPI_* variables that nothing reads are named, with what was meant, once and on stderr."""

import pytest
from command_line import CommandLine
from fake_engine import FakeEngine


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("SHARPI_MOE_WARM_PIN", "SHARPI_MOE_WARMPIN"),
        ("SHARPI_THREAD", "SHARPI_THREADS"),
        ("SHARPI_N_GPU_LAYERS", "SHARPI_GPU_LAYERS"),
        ("SHARPI_TEMPERATURE", "SHARPI_TEMP"),
        ("SHARPI_MOE_EXPERTS_CACHE_SIZE", "SHARPI_MOE_SLOTS"),
        ("SHARPI_DEBUGS", "SHARPI_DEBUG"),
        ("SHARPI_PORTS", "SHARPI_PORT"),  # of another command than the one that runs
    ],
)
def test_misspelt_variable_is_named_with_what_was_meant(
    sharpi: CommandLine,
    engine: FakeEngine,
    monkeypatch: pytest.MonkeyPatch,
    typed: str,
    meant: str,
) -> None:
    monkeypatch.setenv(typed, "3")
    result = sharpi("run", "m.gguf", "Where?")
    assert (result.exit_code, result.out) == (0, "Paris it is.\n")
    notes = [line for line in result.err.splitlines() if line.startswith("note: ")]
    assert notes == [
        f"note: {typed} is not a variable of sharpi and has no effect: did you mean {meant}?"
    ]


def test_all_of_them_are_one_note(
    sharpi: CommandLine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARPI_THREAD", "3")
    monkeypatch.setenv("SHARPI_XYZZY", "3")
    err = sharpi("run", "m.gguf", "Where?").err
    assert err.count("note: ") == 1
    assert "SHARPI_XYZZY is not a variable of sharpi and has no effect\n" in err


def test_variables_of_other_commands_and_empty_ones_are_no_mistakes(
    sharpi: CommandLine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SHARPI_PORT", "SHARPI_N_PROMPT", "SHARPI_DEBUG", "SHARPI_MOE_EXPERT_CACHE_SIZE"):
        monkeypatch.setenv(name, "3")
    monkeypatch.setenv("SHARPI_THREAD", "")
    assert "note: " not in sharpi("run", "m.gguf", "Where?").err
    monkeypatch.setenv("SHARPI_MOE_WARM_PIN", "3")
    assert "did you mean" in sharpi("plan", "none.gguf").err


def test_two_variables_of_one_option_must_agree(
    sharpi: CommandLine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARPI_MOE_SLOTS", "3")
    monkeypatch.setenv("SHARPI_MOE_EXPERT_CACHE_SIZE", "4")
    result = sharpi("run", "m.gguf", "Where?")
    both = "SHARPI_MOE_SLOTS and SHARPI_MOE_EXPERT_CACHE_SIZE"
    assert (result.exit_code, result.out) == (2, "")
    assert result.err == f"error: {both} contradict each other; keep one\n"
    monkeypatch.setenv("SHARPI_MOE_SLOTS", "4")
    assert sharpi("run", "m.gguf", "Where?").exit_code == 0
