"""gpt-oss's channels, as documented and with the model's variations."""

import pytest
from answers import read

from sharpi.dialogue.formats.harmony import ANALYSIS, Harmony

ANALYSE = "<|channel|>analysis<|message|>Look it up.<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>It rains.\n"
CALL = '<|constrain|>json<|message|>{"city": "Oslo"}'
EVENT = ("call", "get_weather", '{"city": "Oslo"}')


def events(text: str, **options: object) -> list:
    found = read(Harmony(), text, markers=ANALYSIS, **options)  # type: ignore[arg-type]
    assert found == read(Harmony(), [text], markers=ANALYSIS, **options)  # type: ignore[arg-type]
    return found


def test_reasoning_and_answer() -> None:
    expected = [("reasoning", "Look it up."), ("text", "It rains.\n")]
    assert events(ANALYSE + FINAL) == expected
    assert events(ANALYSE + FINAL, tools=()) == expected
    assert events(f"{ANALYSE}{FINAL}<|return|>") == expected


@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>commentary to=functions.get_weather ",
        "<|channel|>analysis to=functions.get_weather ",
        " to=functions.get_weather<|channel|>commentary ",
        "<|channel|>commentary to=get_weather ",
    ],
)
def test_calls(header: str) -> None:
    assert events(ANALYSE + header + CALL) == [("reasoning", "Look it up."), EVENT]
    assert events(f"{ANALYSE}{header}{CALL}<|call|>")[-1] == EVENT
    assert events(header + CALL) == [EVENT]  # after a prompt that ends with the role


def test_several_calls_and_a_preamble() -> None:
    header = "<|channel|>commentary to=functions.get_weather "
    text = f"<|channel|>commentary<|message|>One moment.<|end|><|start|>assistant{header}{CALL}"
    assert events(text) == [("text", "One moment."), EVENT]
    assert events(f"{header}{CALL}<|call|><|start|>assistant{header}{CALL}") == [EVENT, EVENT]


def test_texts_of_several_messages_are_paragraphs() -> None:
    text = f"<|channel|>commentary<|message|>One moment.<|end|><|start|>assistant{ANALYSE}{FINAL}"
    assert events(text) == [
        ("text", "One moment."),
        ("reasoning", "Look it up."),
        ("text", "\n\nIt rains.\n"),
    ]
    assert events(text.replace(ANALYSE, "")) == [("text", "One moment.\n\nIt rains.\n")]


def test_without_tools_a_call_is_text() -> None:
    header = "<|channel|>commentary to=functions.get_weather "
    assert events(header + CALL, tools=()) == [("text", '{"city": "Oslo"}')]


def test_a_message_to_someone_else_is_text() -> None:
    text = "<|channel|>commentary to=python code<|message|>print(1)"
    assert events(text) == [("text", "print(1)")]


def test_answers_outside_of_channels_are_text() -> None:
    assert events("It rains.") == [("text", "It rains.")]
    assert events("Look.<|end|><|start|>assistant" + FINAL, starts_inside=True) == [
        ("reasoning", "Look."),
        ("text", "It rains.\n"),
    ]


def test_a_header_that_breaks_off_is_no_text() -> None:
    assert events("<|channel|>ana") == []
