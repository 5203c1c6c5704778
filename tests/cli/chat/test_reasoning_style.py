"""Reasoning on a terminal, without colour, and in a pipe."""

import io
import sys

import pytest
from fake_engine import FakeGeneration, FakeTokenizer

from sharpi.cli.chat.reasoning_style import ReasoningStyle
from sharpi.cli.chat.reply import stream

PIECES = ["<th", "ink>Hm", "m.</think>", "Par", "is"]


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(
    monkeypatch: pytest.MonkeyPatch, screen: io.StringIO, pieces: list, prompt: str = ""
) -> str:
    monkeypatch.setattr(sys, "stdout", screen)
    stream(FakeGeneration(pieces, FakeTokenizer()), ReasoningStyle(prompt))  # type: ignore[arg-type]
    return screen.getvalue()


def test_dimmed_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    text = shown(monkeypatch, Screen(), PIECES)
    assert text == "\x1b[2mHm\x1b[22m\x1b[2mm.\x1b[22mParis\n"


def test_reasoning_opened_by_the_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    text = shown(monkeypatch, Screen(), ["Hm.</think>", "Paris"], "[assistant]<think>\n")
    assert text == "\x1b[2mHm.\x1b[22mParis\n"


def test_channels_of_gpt_oss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    reasoning = ["<|channel|>ana", "lysis<|message|>Hm.", "<|end|><|start|>assistant"]
    answer = ["<|channel|>final<|mess", "age|>Par", "is"]
    text = shown(monkeypatch, Screen(), [*reasoning, *answer], "<|end|><|start|>assistant")
    assert text == "\x1b[2mHm.\x1b[22m\n\nParis\n"


def test_broken_off_reasoning_leaves_no_style_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    text = shown(monkeypatch, Screen(), ["<think>Hm</th", KeyboardInterrupt()])
    assert text == "\x1b[2mHm\x1b[22m\x1b[2m</th\x1b[22m\n"


@pytest.mark.parametrize("screen", [Screen(), io.StringIO()])
def test_as_it_is_without_colour_or_terminal(
    monkeypatch: pytest.MonkeyPatch, screen: io.StringIO
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown(monkeypatch, screen, PIECES) == "<think>Hmm.</think>Paris\n"
