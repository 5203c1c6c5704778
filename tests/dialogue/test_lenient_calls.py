"""Calls in which a model errs: read where the meaning is plain, otherwise text, unchanged."""

import json

import pytest
from answers import FORMS, TOOLS, AnswerParser, AnswerText, Calls, Tool, joined, read

OSLO = ("call", "get_weather", {"city": "Oslo"})
OBJECT = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
TAGGED = f"<tool_call>\n{OBJECT}\n</tool_call>"
QWEN = "<tool_call>\n<function=get_weather>\n{}</function>\n</tool_call>"
CITY = "<parameter=city>\nOslo\n</parameter>\n"
ARGUMENTS = '{"city": "Oslo"}'
DSML = """<D|SECTION>
<D|invoke name="get_weather">
<D|parameter name="city" string="true">Oslo</D|parameter>
</D|invoke>
</D|SECTION>"""


def found(form: str, answer: str) -> list:
    """Returns the events of an answer, which are the same in any pieces."""
    events = read(FORMS[form], [answer])
    for size in (1, 3, 7):
        pieces = [answer[at : at + size] for at in range(0, len(answer), size)]
        assert read(FORMS[form], pieces) == events
    return [(*each[:2], json.loads(each[2])) if each[0] == "call" else each for each in events]


@pytest.mark.parametrize(
    ("form", "answer"),
    [
        # A code block around a call, within its markers, or instead of them.
        ("Hermes", f"```json\n{TAGGED}\n```"),
        ("Hermes", f"```\n{TAGGED}\n```"),
        ("Hermes", f"<tool_call>\n```json\n{OBJECT}\n```\n</tool_call>"),
        ("Hermes", f"```json\n{OBJECT}\n```"),
        ("Qwen3-Coder", "```xml\n" + QWEN.format(CITY) + "\n```"),
        ("Kimi K2", "<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
                    f"```json\n{ARGUMENTS}\n```<|tool_call_end|>"),
        ("Mistral", f"[TOOL_CALLS]```json\n[{OBJECT}]\n```"),
        ("LFM2", '```python\n[get_weather(city="Oslo")]\n```'),
        # Python's quotes and words, and commas after the last item.
        ("Hermes", TAGGED.replace('"', "'")),
        ("Hermes", TAGGED.replace('"Oslo"', '"Oslo",')),
        ("Hermes", TAGGED.replace('"}}', '"},}')),
        ("Granite 3", f"<|tool_call|>[{OBJECT},]"),
        ("DeepSeek V3.1", "<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{'city': 'Oslo'}"),
        # Braces too many or too few.
        ("Hermes", f"<tool_call>\n{OBJECT}}}\n</tool_call>"),
        ("Hermes", f"<tool_call>\n{OBJECT}}}}}</tool_call>"),
        ("Hermes", f"<tool_call>\n{OBJECT[:-1]}\n</tool_call>"),
        ("Qwen3-Coder", QWEN.format(f"{ARGUMENTS}\n")),
        # Tags twice, and values left out.
        ("GLM-4.5", "<tool_call>get_weather<arg_key><arg_key>city</arg_key></arg_key>"
                    "<arg_value>Oslo</arg_value></tool_call>"),
        ("Qwen3-Coder", QWEN.format(CITY) + "\n</tool_call>"),
        ("Qwen3-Coder", QWEN.format(f"{CITY}<parameter=days></parameter>\n")),
        # Markers that are missing, or those of a neighbouring notation.
        ("Hermes", OBJECT),
        ("Hermes", f"<tool_call>{OBJECT}"),
        ("Qwen3-Coder", f"<function=get_weather>\n{CITY}</function>"),
        ("Qwen3-Coder", f"<tool_call>{OBJECT}</tool_call>"),
        ("GLM-4.5", TAGGED),
        ("MiniMax M2", '<invoke name="get_weather"><parameter name="city">Oslo</parameter>'),
        ("Kimi K2", '<|tool_call_begin|>get_weather<|tool_call_argument_begin|>{"city": "Oslo"}'),
        ("Llama 3", '[get_weather(city="Oslo")]'),
        ("Mistral", f'[TOOL_CALLS]get_weather{ARGUMENTS}'),
        # The name before the arguments, or within the object that OpenAI's API has.
        *((form, f"<tool_call>{inner}</tool_call>")
          for form in ("Hermes", "GLM-4.5", "Qwen3-Coder")
          for inner in (f"get_weather {ARGUMENTS}", f"\nget_weather\n{ARGUMENTS}\n",
                        'get_weather(city="Oslo")', f'{{"function": {OBJECT}}}',
                        f'{{"tool": "get_weather", "arguments": {ARGUMENTS}}}',
                        f'{{"type": "function", "function": {OBJECT}}}')),
        # Brackets that are missing before a marker.
        ("Hermes", f"<tool_call>\n{OBJECT[:-2]}\n</tool_call>"),
        ("DeepSeek V3.1", '<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Oslo"'
                          "<｜tool▁call▁end｜>"),
        ("gpt-oss", '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>'
                    '{"city": "Oslo"<|call|>'),
        # Blanks around markers.
        ("Kimi K2", "<|tool_calls_section_begin|> <|tool_call_begin|> functions.get_weather:0 "
                    '<|tool_call_argument_begin|> {"city": "Oslo"} <|tool_call_end|> '
                    "<|tool_calls_section_end|>"),
        # Arguments that are none, of which the others are kept.
        *(("Qwen3-Coder", QWEN.format(f"{before}<parameter={odd}\n</parameter>\n{after}"))
          for before, after in ((CITY, ""), ("", CITY)) for odd in ("", "a: [1]", "a=", "\nls")),
        ("MiniMax M2", '<invoke name="get_weather">so <parameter name="city">Oslo</parameter> and '
                       "</invoke>"),
        # DeepSeek's marks in other characters.
        *((form, DSML.replace("D|", f"{mark}DSML{mark}").replace("SECTION", section))
          for form in ("DeepSeek V3.2", "DeepSeek V4")
          for mark in ("|", "||", "\u2016", "\uff5c", "\uff5c\uff5c")
          for section in ("tool_calls", "function_calls")),
    ],
)  # fmt: skip
def test_plain_meanings(form: str, answer: str) -> None:
    assert found(form, answer) == [OSLO]


@pytest.mark.parametrize(
    ("form", "answer"),
    [
        ("Llama 3", 'I look it up.\n[get_weather(city="Oslo")]'),
        ("LFM2", "I look it up. [get_weather(city='Oslo')]"),
        ("Mistral", f"I look it up.\n\n[{OBJECT}]"),
        ("Granite 3", f"I look it up. [{OBJECT}]"),
        ("Hermes", f"I look it up.\n```json\n{TAGGED}\n```"),
    ],
)
def test_a_list_of_calls_after_text(form: str, answer: str) -> None:
    assert found(form, answer) == [("text", answer.partition(".")[0] + "."), OSLO]


@pytest.mark.parametrize(
    ("form", "answer"),
    [
        ("Hermes", '```json\n{"name": "Oslo", "arguments": {}}\n```'),  # no tool
        ("Hermes", '{"note": 1, "name": "get_weather", "arguments": {}}'),
        ("Hermes", "```json\n<tool_call>\n[1]\n```"),
        ("Llama 3", "So: [get_weather(3)]"),
        ("Llama 3", f"So: {OBJECT}"),
        ("LFM2", "[get_time()"),
        ("Mistral", "Take [1] and [{}]."),
        ("Qwen3-Coder", "Write <function=f> so."),
        ("MiniMax M2", '<invoke name="f"></invoke>'),
        ("gpt-oss", "```json\n{}\n```"),
        ("Hermes", "<tool_call>get_weather city=Oslo</tool_call>"),
        ("Qwen3-Coder", "<tool_call>\nget_weather\nOslo\n</tool_call>"),
        ("GLM-4.5", "<tool_call>f(x=1)</tool_call>"),
        ("DeepSeek V4", '<|DSML|invoke name="f"></|DSML|invoke>'),
    ],
)
def test_everything_else_is_text(form: str, answer: str) -> None:
    assert found(form, answer) == [("text", answer)]


def test_brackets_that_will_not_come_are_added() -> None:
    """An answer that a limit ends may be cut; one that the model ends is whole."""
    for is_whole, arguments in ((True, ARGUMENTS), (False, ARGUMENTS[:-1])):
        source = AnswerText()
        reading = FORMS["Mistral"].read_answer(source, Calls(TOOLS), None, False)
        parser = AnswerParser(source, reading)
        events = [*parser.feed(f"[TOOL_CALLS]get_weather[ARGS]{ARGUMENTS[:-1]}")]
        assert joined([*events, *parser.flush(is_whole)]) == [("call", "get_weather", arguments)]


def test_headers_of_gpt_oss_that_are_malformed() -> None:
    """A message without a text is dropped, and its recipient with it."""
    broken = "<|channel|>commentary to=functions.get_weather?<|end|><|start|>assistant"
    answer = '<|channel|>final<|message|>{"a": 1}'
    assert found("gpt-oss", broken + answer) == [("text", '{"a": 1}')]


def test_tools_whose_names_are_no_names_in_python() -> None:
    tool = Tool("mcp.x-y", "", {"type": "object"})
    answer = '[mcp.x-y(a=[1, "b"]), mcp.x-y()]'
    calls = [("call", "mcp.x-y", '{"a": [1, "b"]}'), ("call", "mcp.x-y", "{}")]
    assert read(FORMS["LFM2"], answer, tools=[tool]) == calls


def test_python_words_and_quotes_become_json() -> None:
    text = """{'a': True, 'b': [None, False,], "c": 'it\\'s "x"', 'd': "True, ", 'e': -1.5e3 , }"""
    wanted = {"a": True, "b": [None, False], "c": 'it\'s "x"', "d": "True, ", "e": -1500.0}
    call = f"<tool_call>{{'name': 'f', 'arguments': {text}}}</tool_call>"
    assert found("Hermes", call) == [("call", "f", wanted)]
    tool = Tool("f", "", {"type": "object", "properties": {"a": {"type": "object"}}})
    written = f"<tool_call><function=f><parameter=a>{text}</parameter></function></tool_call>"
    (event,) = read(FORMS["Qwen3-Coder"], [written], tools=[tool])
    assert json.loads(event[2]) == {"a": wanted}


_MARK = '<|"|>'


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ("""a:['x',"y z"],b:{"k": "v",'l':1}""", {"a": ["x", "y z"], "b": {"k": "v", "l": 1}}),
        ('a=["x"],b=3', {"a": ["x"], "b": 3}),
        (f"a:Paris, France{_MARK},b:5", {"a": "Paris, France", "b": 5}),
        (f"a:Tokyo{_MARK}", {"a": "Tokyo"}),
        (f"a:{_MARK}f({_MARK}{_MARK}1, 2{_MARK}{_MARK}){_MARK},b:1", {"a": 'f(""1, 2"")', "b": 1}),
        (f"a:{_MARK}x{_MARK}b:{_MARK}{_MARK}", {"a": "x", "b": ""}),
        ("a:'x, 1', b: word", {"a": "x, 1", "b": "word"}),
    ],
)
def test_gemma_4_writes_strings_in_many_ways(arguments: str, wanted: dict) -> None:
    call = f"<|tool_call>call:f{{{arguments}}}<tool_call|>"
    assert found("Gemma 4", call) == [("call", "f", wanted)]


def test_strings_with_line_breaks_and_quotes_in_python_calls() -> None:
    """LFM2.5's own template writes strings without escapes."""
    answer = "<|tool_call_start|>[get_weather(city='it's\n\"x\"', days=2)]<|tool_call_end|>"
    assert found("LFM2", answer) == [("call", "get_weather", {"city": 'it\'s\n"x"', "days": 2})]


def test_values_of_minimax_m3_may_be_nested() -> None:
    schema = {
        "type": "object",
        "properties": {
            "list": {"type": "array", "items": {"type": "string"}},
            "deep": {"type": "object", "properties": {"list": {"type": "array"}}},
        },
    }
    text = (
        (
            '<tool_call>\n<invoke name="f"><list><item>1</item><item>a<b</item></list>'
            "<deep><n>2</n><list><item><item>x</item></item></list></deep></invoke>\n</tool_call>"
        )
        .replace("<", "]<]minimax[>[<")
        .replace("a]<]minimax[>[<b", "a<b")
    )
    (event,) = read(FORMS["MiniMax M3"], text, tools=[Tool("f", "", schema)])
    assert json.loads(event[2]) == {"list": ["1", "a<b"], "deep": {"n": 2, "list": [["x"]]}}


def test_a_lone_closing_marker_of_reasoning_is_no_text() -> None:
    """Models write it where the prompt has ended the reasoning already."""
    assert read(FORMS["Hermes"], "</think>\n\nHi.") == [("text", "Hi.")]
