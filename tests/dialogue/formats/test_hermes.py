"""Calls in `<tool_call>` tags, well-formed and malformed."""

import json

import pytest
from answers import FORMS, read

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
EVENT = ("call", "get_weather", '{"city": "Oslo"}')


def test_calls_stream_between_texts() -> None:
    events = read(FORMS["Hermes"], f"Let me see.\n\n{CALL}\n{CALL}\nDone.\n")
    assert events == [("text", "Let me see."), EVENT, EVENT, ("text", "\n\nDone.\n")]


def test_reasoning_first() -> None:
    events = read(FORMS["Hermes"], f"<think>\nA <tool_call>?\n</think>\n\n{CALL}")
    assert events == [("reasoning", "A <tool_call>?"), EVENT]
    for blanks in ("", "\n\n"):
        assert read(FORMS["Hermes"], f"<think>{blanks}</think>\n\nHi.\n") == [("text", "Hi.\n")]


def test_reasoning_comes_before_text_only() -> None:
    text = "The tag <think> opens reasoning, </think> closes it."
    assert read(FORMS["Hermes"], text) == [("text", text)]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>{}</tool_call>",
        "<tool_call>get_weather</tool_call>",
        '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "get_weather", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "get_weather", "arguments": "Oslo"}</tool_call>',
        '<tool_call>{"arguments": {"city": "Oslo"}}</tool_call>',
        '<tool_call>{"name": "get_weather", "arg',
        "Use <tool_call> and </tool_call>.",
    ],
)
def test_what_is_no_call_is_text(text: str) -> None:
    assert read(FORMS["Hermes"], text) == [("text", text)]


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"arguments": {"city": "Oslo"}, "name": "get_weather"}</tool_call>',
        '<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"Oslo\\"}"}</tool_call>',
        '<tool_call>{"id": 7, "name" : "get_weather", "parameters" :{"city": "Oslo"}}</tool_call>',
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}, "x": "}"}</tool_call>',
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}',
        '<tool_call> {"name": "get_weather", "arguments": {"city": "Oslo"}\n</tool_call>',
    ],
)
def test_variants_of_a_call(text: str) -> None:
    assert read(FORMS["Hermes"], text) == [EVENT]
    assert read(FORMS["Hermes"], [text]) == [EVENT]


def test_a_call_without_arguments() -> None:
    for arguments in ("", ', "arguments": null', ', "arguments": {}'):
        text = f'<tool_call>{{"name": "get_time"{arguments}}}</tool_call>'
        assert read(FORMS["Hermes"], text) == [("call", "get_time", "{}")]


def test_unknown_tools_are_called_all_the_same() -> None:
    text = '<tool_call>{"name": "guess", "arguments": {}}</tool_call>'
    assert read(FORMS["Hermes"], text) == [("call", "guess", "{}")]


def test_line_ends_in_strings_become_json() -> None:
    text = '<tool_call>{"name": "f", "arguments": {"code": "a\n\tb\\n\\"}"}}</tool_call>'
    events = read(FORMS["Hermes"], text)
    assert json.loads(events[0][2]) == {"code": 'a\n\tb\n"}'}


def test_after_a_call_that_is_none_others_are_found() -> None:
    assert read(FORMS["Hermes"], f"<tool_call>no {CALL}") == [("text", "<tool_call>no"), EVENT]


def test_broken_off_arguments_are_passed_on() -> None:
    assert read(FORMS["Hermes"], CALL[: CALL.index("slo")]) == [
        ("call", "get_weather", '{"city": "O')
    ]


def test_rest_of_a_malformed_object_is_text() -> None:
    text = '<tool_call>{"name": "get_time", "arguments": {}}} so'
    assert read(FORMS["Hermes"], text) == [("call", "get_time", "{}"), ("text", "} so")]
