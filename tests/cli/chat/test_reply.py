"""The reasoning of an answer on a terminal and in a pipe, and the line of its speeds."""

import io
import sys

import pytest
from command_line import CommandLine
from fake_engine import FakeEngine, FakeGeneration, FakeTimings, FakeTokenizer

from sharpi.cli.chat.reply import ReasoningStyle, drafts_line, reasoning_of, stream, timings_line
from sharpi.engine.sampling.generation_state import Timings
from sharpi.speculation.draft import Draft
from sharpi.speculation.statistics import DraftStatistics

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
        assert text == "\x1b[2mHm.\x1b[22m\n\nParis\n", gap


def test_reasoning_of_an_answer() -> None:
    assert reasoning_of("<think>Hm.</think>Paris", "") == "Hm."
    assert reasoning_of("Paris", "") == ""


SPEEDS = (
    "prompt 20.0 tokens/s (10 tokens), decode 25.0 tokens/s (5 tokens), first token after 0.25 s"
)
NONE = "drafts: none were looked for"


def statistics(
    *kinds: tuple[str, int, int, int], without: float = 2.0, num_tokens: int = 12
) -> DraftStatistics:
    """Returns counts of 8 steps in a second; kinds with proposed, checked and accepted tokens."""
    made = DraftStatistics(num_steps=8, num_tokens=num_tokens, seconds=1.0, seconds_without=without)
    for kind, proposed, checked, accepted in kinds:
        draft = Draft(kind, (0,) * proposed, ())  # type: ignore[arg-type]
        made.add_draft(draft, checked, accepted)
    return made


@pytest.mark.parametrize(
    ("drafts", "expected"),
    [
        (None, NONE),
        (statistics(without=0.99, num_tokens=8), "drafts: none proposed, 1.00 tokens a step"
         ", 0.01 s lost"),
        (
            statistics(("ngram", 6, 5, 3), ("suffix", 4, 2, 1)),
            "drafts: ngram 6 proposed, 5 checked, 3 accepted; "
            "suffix 4 proposed, 2 checked, 1 accepted; 1.50 tokens a step, 1.00 s saved",
        ),
        (
            statistics(("ngram", 6, 0, 0), without=1.0, num_tokens=8),
            "drafts: ngram 6 proposed, 0 checked, 0 accepted; 1.00 tokens a step",
        ),
        (
            statistics(("mtp", 6, 6, 0), without=0.98, num_tokens=8),
            "drafts: mtp 6 proposed, 6 checked, 0 accepted; 1.00 tokens a step, 0.02 s lost",
        ),
    ],
    ids=["off", "none proposed", "two kinds", "none checked", "all rejected"],
)  # fmt: skip
def test_verbose_line_says_what_drafts_gave(drafts: DraftStatistics | None, expected: str) -> None:
    assert drafts_line(drafts) == expected


def test_one_token_has_no_speed_of_decode() -> None:
    made = Timings(num_prompt_tokens=5, prefill_seconds=0.5, num_generated_tokens=1)
    assert timings_line(made) == "prompt 10.0 tokens/s (5 tokens), first token after 0.00 s"


@pytest.mark.parametrize(
    ("without", "end"),
    [(1.0049, ""), (0.9951, ""), (0.98, ", 0.02 s lost"), (1.02, ", 0.02 s saved")],
)
def test_time_is_saved_or_lost_or_left_out(without: float, end: str) -> None:
    line = drafts_line(statistics(("ngram", 3, 3, 1), without=without))
    assert line.partition(" a step")[2] == end


def test_drafts_that_no_step_checked_are_in_no_brief_line(
    sharpi: CommandLine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeTimings, "drafts", statistics(("ngram", 6, 0, 0)))
    assert sharpi("run", "m.gguf", "hi").err == f"{SPEEDS}\n"


@pytest.mark.parametrize("flag", ["-v", "--verbose", "SHARPI_VERBOSE"])
def test_run_says_it_after_the_speeds(
    flag: str, sharpi: CommandLine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeTimings, "drafts", statistics(("ngram", 6, 5, 3)))
    brief = sharpi("run", "m.gguf", "hi").err
    assert brief == f"{SPEEDS}, 1.50 tokens a step (right drafts: ngram 3 of 5), 1.00 s saved\n"
    flags = [flag]
    if flag.startswith("SHARPI"):
        monkeypatch.setenv(flag, "1")
        flags = []
    assert sharpi("run", "m.gguf", "hi", *flags).err.splitlines() == [
        SPEEDS,
        "drafts: ngram 6 proposed, 5 checked, 3 accepted; 1.50 tokens a step, 1.00 s saved",
    ]


def test_run_says_it_where_nothing_was_drafted(sharpi: CommandLine, engine: FakeEngine) -> None:
    assert sharpi("run", "m.gguf", "hi").err.splitlines() == [SPEEDS]
    assert sharpi("run", "m.gguf", "hi", "-v").err.splitlines() == [SPEEDS, NONE]


def test_chat_says_it_after_each_answer(sharpi: CommandLine, engine: FakeEngine) -> None:
    said = sharpi("chat", "m.gguf", "-v", stdin="Hi\nAnd?\n")
    assert said.err.splitlines() == [SPEEDS, NONE] * 2
    assert sharpi("chat", "m.gguf", stdin="Hi\n").err == ""


def test_v_without_a_command_is_the_version(sharpi: CommandLine, engine: FakeEngine) -> None:
    version = sharpi("--version").out
    assert sharpi("-v", "run", "m.gguf", "hi").out == sharpi("-v").out == version
    assert sharpi("run", "m.gguf", "hi", "-v").out == "Paris it is.\n"
