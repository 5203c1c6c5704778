"""Reasoning on a terminal, without colour, and in a pipe."""

import io
import sys

import pytest
from fake_engine import FakeGeneration, FakeTokenizer

from sharpi.cli.chat.reply import ReasoningStyle, reasoning_of, stream

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
    assert text == "\x1b[2mHm\x1b[22m\x1b[2mm.\x1b[22m\n\nParis\n"


def test_reasoning_opened_by_the_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    text = shown(monkeypatch, Screen(), ["Hm.</think>", "Paris"], "[assistant]<think>\n")
    assert text == "\x1b[2mHm.\x1b[22m\n\nParis\n"


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


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_headings_set_it_apart_without_colour(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    text = shown(monkeypatch, Screen(), PIECES)
    assert text == "Reasoning:\nHmm.\n\nAnswer:\nParis\n"
    assert shown(monkeypatch, Screen(), ["Par", "is"]) == "Paris\n"


def test_as_it_is_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, io.StringIO(), PIECES) == "<think>Hmm.</think>Paris\n"


def test_the_gap_is_one_empty_line_whatever_the_model_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for gap in ("", "\n", "\n\n\n"):
        text = shown(monkeypatch, Screen(), ["<think>Hm.", "\n", "</think>", gap, "Paris"])
        assert text == "\x1b[2mHm.\x1b[22m\x1b[2m\n\x1b[22m\nParis\n", gap


def test_reasoning_of_an_answer() -> None:
    assert reasoning_of("<think>Hm.</think>Paris", "") == "Hm."
    assert reasoning_of("Paris", "") == ""
