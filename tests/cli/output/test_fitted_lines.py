"""Messages at a terminal end their lines between words; elsewhere they are one line."""

import io

import pytest

from sharpi.cli.output.terminal import fitted

LONG = "error: 'llama3' is neither a file nor a model; write sharpi run -p 'llama3' instead"


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_no_word_is_cut(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = fitted(LONG, Screen(), indent=2).split("\n")
    assert max(map(len, lines)) <= columns
    assert " ".join(line.strip() for line in lines) == LONG
    assert all(line.startswith("  ") for line in lines[1:])


def test_what_fits_or_goes_elsewhere_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert fitted("a  b\n  c", Screen()) == "a  b\n  c"
    assert fitted(LONG, io.StringIO()) == LONG
