"""Mistral and DeepSeek: both generations of each, as published and as models vary them."""

import pytest
from answers import read

from sharpi.dialogue.deepseek import DeepSeek
from sharpi.dialogue.mistral import Mistral

OSLO = ("call", "get_weather", '{"city": "Oslo"}')
TIME = ("call", "get_time", "{}")
V3 = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n```json\n{}\n```<｜tool▁call▁end｜>"
V31 = "<｜tool▁call▁begin｜>{}<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
BEGIN, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"


@pytest.mark.parametrize("form", [Mistral(), Mistral(is_newer=True)])
@pytest.mark.parametrize(
    "text",
    [
        '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Oslo"}},'
        ' {"name": "get_time", "arguments": {}}]',
        '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Oslo"}, "id": "123456789"},'
        ' {"name": "get_time", "arguments": {}, "id": "abcdefghi"}]',
        '[TOOL_CALLS]get_weather[ARGS]{"city": "Oslo"}[TOOL_CALLS]get_time[ARGS]{}',
        '[TOOL_CALLS]get_weather[CALL_ID]123456789[ARGS]{"city": "Oslo"}'
        "[TOOL_CALLS]get_time[CALL_ID]abcdefghi[ARGS]{}",
        '[TOOL_CALLS]get_weather{"city": "Oslo"}\n[TOOL_CALLS]get_time{}',
    ],
)
def test_mistral(form: Mistral, text: str) -> None:
    assert read(form, text) == [OSLO, TIME]
    assert read(form, ["Well. ", text]) == [("text", "Well."), OSLO, TIME]


@pytest.mark.parametrize(
    "text",
    ["[TOOL_CALLS]", "[TOOL_CALLS][1]", "[TOOL_CALLS]two words[ARGS]{}", "[TOOL_CALLS]f[ARGS]x"],
)
def test_mistral_text(text: str) -> None:
    assert read(Mistral(), text) == [("text", text)]


@pytest.mark.parametrize("form", [DeepSeek(has_blocks=True), DeepSeek(has_blocks=False)])
@pytest.mark.parametrize("pattern", [V3, V31])
@pytest.mark.parametrize(
    ("begin", "between", "end"), [(BEGIN, "", END), (BEGIN, "\n", END), ("", "", "")]
)
def test_deepseek(form: DeepSeek, pattern: str, begin: str, between: str, end: str) -> None:
    def call(name: str, arguments: str) -> str:
        return pattern.replace("{}", name, 1).replace("{}", arguments, 1)

    oslo, time = call("get_weather", '{"city": "Oslo"}'), call("get_time", "{}")
    text = f"Well.\n\n{begin}{oslo}{between}{time}{end}"
    assert read(form, text) == [("text", "Well."), OSLO, TIME]


def test_deepseek_text() -> None:
    for text in (BEGIN, f"{BEGIN}x", V31.format("two words", "{}"), V31.format("f", "x")):
        assert read(DeepSeek(has_blocks=True), text) == [("text", text)]
