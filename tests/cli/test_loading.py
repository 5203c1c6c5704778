"""The progress bar: late, and for terminals only."""

import io
import sys

import pytest

from sharpi.cli import loading
from sharpi.cli.loading import ProgressBar


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown_on(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, *, patience: float) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(loading, "PATIENCE_SECONDS", patience)
    monkeypatch.setenv("TERM", "xterm")
    with ProgressBar() as bar:
        bar.show("reading", 0.1)
        bar.show("preparing", 0.9)
    return stream.getvalue()


def test_quick_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown_on(Screen(), monkeypatch, patience=10) == ""


def test_slow_work_shows_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown_on(Screen(), monkeypatch, patience=-1)
    assert "preparing" in text
    assert "90%" in text


def test_no_colour_where_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = shown_on(Screen(), monkeypatch, patience=-1)
    assert "preparing" in text
    assert "\x1b[3" not in text


def test_nothing_in_a_log_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown_on(io.StringIO(), monkeypatch, patience=-1) == ""
