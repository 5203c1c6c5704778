"""Llama 3: calls without a marker, as distinct from other JSON and lists."""

import pytest
from answers import FORMS, read

CALL = '{"name": "get_weather", "parameters": {"city": "Oslo"}}'
EVENT = ("call", "get_weather", '{"city": "Oslo"}')


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"<|python_tag|>{CALL}",
        f"\n\n{CALL}\n",
        f"Let me.<|python_tag|>{CALL}",
        '{"type": "function", "name": "get_weather", "parameters": {"city": "Oslo"}}',
        '[get_weather(city="Oslo")]',
        "[get_weather(city='Oslo')]",
    ],
)
def test_calls(text: str) -> None:
    assert [event for event in read(FORMS["Llama 3"], text) if event[0] == "call"] == [EVENT]
    assert read(FORMS["Llama 3"], text)[-1] == EVENT


def test_several() -> None:
    for text in (f"{CALL}; {CALL}", f"{CALL}\n{CALL}"):
        assert read(FORMS["Llama 3"], text) == [EVENT, EVENT]
    events = read(FORMS["Llama 3"], "[get_weather(city='a]\\'', days=3), get_time()]")
    assert events == [
        ("call", "get_weather", '{"city": "a]\'", "days": 3}'),
        ("call", "get_time", "{}"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        '{"city": "Oslo", "name": "get_weather", "parameters": {}}',
        '{"name": "Oslo", "parameters": {}}',
        '{"name": "Oslo"}',
        "[1, 2]",
        "[get_weather]",
        "[get_weather(3)]",
        "[get_weather(city=open('x'))]",
        "[get_weather(city={1})]",
        "[get_weather(**{})]",
        "[get_weather(city='Oslo'",
        "[get_weather(" + "(" * 5000 + ")" * 5000 + ")]",
        f"See: {CALL}",
        '<|python_tag|>brave_search.call(query="x")',
        '{"name": "get_weather"',
        "{",
        "[",
    ],
)
def test_text(text: str) -> None:
    assert read(FORMS["Llama 3"], text) == [("text", text)]
    assert read(FORMS["Llama 3"], [text]) == [("text", text)]


def test_other_json_streams_at_once() -> None:
    """An answer that is a JSON object of its own does not wait for its end."""
    assert read(FORMS["Llama 3"], ['{"city": "Osl']) == [("text", '{"city": "Osl')]
