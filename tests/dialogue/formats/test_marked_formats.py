"""Mistral and DeepSeek: both versions of each, as documented and with variations."""

import json

import pytest
from answers import FORMS, read

from sharpi.dialogue.choose_format import FORMATS
from sharpi.dialogue.tool_format import ToolFormat
from sharpi.tokenizer.reasoning import GEMMA_THOUGHT, KNOWN_MARKERS, ReasoningMarkers

SOLAR_MARKERS = next(each for each in KNOWN_MARKERS if each.opening == "<|think|>")
OSLO = ("call", "get_weather", '{"city": "Oslo"}')
TIME = ("call", "get_time", "{}")
V3 = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n```json\n{}\n```<｜tool▁call▁end｜>"
V31 = "<｜tool▁call▁begin｜>{}<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
BEGIN, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"


@pytest.mark.parametrize("form", [form for form in FORMATS if form.name == "Mistral"])
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
def test_mistral(form: ToolFormat, text: str) -> None:
    assert read(form, text) == [OSLO, TIME]
    assert read(form, ["Well. ", text]) == [("text", "Well."), OSLO, TIME]


@pytest.mark.parametrize(
    "text",
    ["[TOOL_CALLS]", "[TOOL_CALLS][1]", "[TOOL_CALLS]two words[ARGS]{}", "[TOOL_CALLS]f[ARGS]x"],
)
def test_mistral_text(text: str) -> None:
    assert read(FORMS["Mistral"], text) == [("text", text)]


@pytest.mark.parametrize("form", [FORMS["DeepSeek V3"], FORMS["DeepSeek V3.1"]])
@pytest.mark.parametrize("pattern", [V3, V31])
@pytest.mark.parametrize(
    ("begin", "between", "end"), [(BEGIN, "", END), (BEGIN, "\n", END), ("", "", "")]
)
def test_deepseek(form: ToolFormat, pattern: str, begin: str, between: str, end: str) -> None:
    def call(name: str, arguments: str) -> str:
        return pattern.replace("{}", name, 1).replace("{}", arguments, 1)

    oslo, time = call("get_weather", '{"city": "Oslo"}'), call("get_time", "{}")
    text = f"Well.\n\n{begin}{oslo}{between}{time}{end}"
    assert read(form, text) == [("text", "Well."), OSLO, TIME]


def test_deepseek_text() -> None:
    for text in (BEGIN, f"{BEGIN}x", V31.format("two words", "{}"), V31.format("f", "x")):
        assert read(FORMS["DeepSeek V3"], text) == [("text", text)]


@pytest.mark.parametrize("first", ["functions.get_weather:0", "get_weather", "get_weather:12"])
def test_kimi(first: str) -> None:
    call = "<|tool_call_begin|>{}<|tool_call_argument_begin|>{}<|tool_call_end|>"
    calls = call.replace("{}", first, 1).replace("{}", ' {"city": "Oslo"}', 1)
    calls += call.replace("{}", "functions.get_time:1", 1)
    text = f"So.<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>"
    assert read(FORMS["Kimi K2"], text) == [("text", "So."), OSLO, TIME]
    singular = text.replace("calls_section", "call_section")
    assert read(FORMS["Kimi K2"], singular) == [("text", "So."), OSLO, TIME]


def test_lfm2() -> None:
    text = "<|tool_call_start|>[get_weather(city='Oslo'), get_time()]<|tool_call_end|>Done."
    assert read(FORMS["LFM2"], text) == [OSLO, TIME, ("text", "Done.")]
    words = "<|tool_call_start|>[get_time(a=true, b=None, c=[1, {'d': null}])]<|tool_call_end|>"
    assert read(FORMS["LFM2"], words) == [
        ("call", "get_time", '{"a": true, "b": null, "c": [1, {"d": null}]}')
    ]
    other = "<|tool_call_start|>[guess()]<|tool_call_end|>"
    assert read(FORMS["LFM2"], other) == [("text", other)]


def gemma(arguments: str) -> str:
    events = read(
        FORMS["Gemma 4"], f"<|tool_call>call:f{arguments}<tool_call|>", markers=GEMMA_THOUGHT
    )
    assert [event[:2] for event in events] == [("call", "f")]
    return str(events[0][2])


def test_gemma4() -> None:
    assert gemma("{}") == "{}"
    assert gemma('{a:<|"|>x, "y"\n<|"|>,b:-3.5,c:true}') == (
        '{"a": "x, \\"y\\"\\n", "b": -3.5, "c": true}'
    )
    nested = '{a:{b:[<|"|>]<|"|>,{c:null}],<|"|>d e<|"|>:[]}}'
    assert gemma(nested) == '{"a": {"b": ["]", {"c": null}], "d e": []}}'
    assert gemma('{"a": {"b": "x,y"}, "c": [1, 2]}') == '{"a": {"b": "x,y"}, "c": [1, 2]}'
    assert gemma("{a:word}") == '{"a": "word"}'


def test_gemma4_thoughts_and_text() -> None:
    thought = "<|channel>thought\nHm.\n<channel|>"
    call = "<|tool_call>call:get_time{}<tool_call|>"
    assert read(FORMS["Gemma 4"], thought + call, markers=GEMMA_THOUGHT) == [
        ("reasoning", "Hm."),
        TIME,
    ]
    assert read(FORMS["Gemma 4"], f"{thought}It rains.", markers=GEMMA_THOUGHT)[1] == (
        "text",
        "It rains.",
    )
    for text in ("<|tool_call>", "<|tool_call>get_time", "<|tool_call>call:two words{}"):
        assert read(FORMS["Gemma 4"], text, markers=GEMMA_THOUGHT) == [("text", text)]
    deep = "[" * 5000
    assert (
        read(FORMS["Gemma 4"], f"<|tool_call>call:f{{a:{deep}", markers=GEMMA_THOUGHT)[0][0]
        == "call"
    )


def test_solar_marks_each_message() -> None:
    text = "<|think|>Hm.<|end|><|begin|>assistant<|content|>It rains.<|end|>"
    assert read(FORMS["Solar Open"], text, markers=SOLAR_MARKERS) == [
        ("reasoning", "Hm."),
        ("text", "It rains."),
    ]
    called = "<|think|>Hm.<|end|><|begin|>assistant" + FORMS["Solar Open"].write([("get_time", {})])
    assert read(FORMS["Solar Open"], called, markers=SOLAR_MARKERS) == [("reasoning", "Hm."), TIME]


def test_markers_around_an_answer_are_no_part_of_it() -> None:
    markers = ReasoningMarkers("<think>", "</think>", ("<response>", "</response>"))
    text = "<think>Hm.</think>\n\n<response>\nIt rains.\n</response>\n"
    assert read(FORMS["Hermes"], text, markers=markers) == [
        ("reasoning", "Hm."),
        ("text", "It rains.\n\n"),
    ]


def test_a_list_may_be_cut_or_hold_one_object() -> None:
    for name in ("Nemotron Nano v2", "Granite 3", "GigaChat 3.1"):
        one = {"name": "get_time", "arguments": {}}
        for text in (json.dumps(one), json.dumps([one]), json.dumps([one])[:-1]):
            assert read(FORMS[name], FORMS[name].markers[0] + text) == [TIME]
