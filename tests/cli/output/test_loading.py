"""Opening an engine: it is always closed, and the progress bar is for long loads at terminals."""

import io
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from fake_engine import FakeEngine

from sharpi.cli.output import loading
from sharpi.cli.output.loading import ProgressBar, open_engine
from sharpi.config import RunConfig
from sharpi.errors import UsageError

CONFIG = RunConfig(Path("m.gguf"))


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown_on(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, *, delay: float) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(loading, "DELAY_SECONDS", delay)
    monkeypatch.setenv("TERM", "xterm")
    with ProgressBar() as bar:
        bar.show("reading", 0.1)
        bar.show("preparing", 0.9)
    return stream.getvalue()


def test_quick_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown_on(Screen(), monkeypatch, delay=10) == ""


def test_slow_work_shows_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown_on(Screen(), monkeypatch, delay=-1)
    assert "preparing" in text
    assert "90%" in text


def test_no_colour_where_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = shown_on(Screen(), monkeypatch, delay=-1)
    assert "preparing" in text
    assert "\x1b[3" not in text


def test_nothing_in_a_log_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown_on(io.StringIO(), monkeypatch, delay=-1) == ""


@pytest.mark.parametrize(
    "error", [None, UsageError("x"), KeyboardInterrupt(), BrokenPipeError(), SystemExit(143)]
)
def test_engine_is_closed_and_has_the_last_word(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str], error: BaseException | None
) -> None:
    engine.notes, engine.last_words = ("first",), ("second", "third")
    with pytest.raises(type(error)) if error else nullcontext(), open_engine(CONFIG):
        assert not engine.is_closed
        assert capsys.readouterr().err == "note: first\n"
        if error is not None:
            raise error
    assert engine.is_closed
    assert capsys.readouterr().err == "note: second\nnote: third\n"
