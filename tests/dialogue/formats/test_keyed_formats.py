"""Qwen3-Coder and GLM_TEXT: bare values, typed by the tool's schema."""

import json

import pytest
from answers import FORMS, TOOLS, is_accepted, read, small_tokenizer

from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.keyed_arguments import json_text
from sharpi.dialogue.tools import Tool

CODER = """\
<tool_call>
<function=get_weather>
<parameter=city>
New
York
</parameter>
<parameter=days>
3
</parameter>
</function>
</tool_call>"""
GLM_TEXT = """\
<tool_call>get_weather
<arg_key>city</arg_key>
<arg_value>New
York</arg_value>
<arg_key>days</arg_key>
<arg_value>3</arg_value>
</tool_call>"""
EVENT = ("call", "get_weather", '{"city": "New\\nYork", "days": 3}')


@pytest.mark.parametrize(
    "text", [CODER, CODER.removeprefix("<tool_call>\n"), CODER.replace("\n</tool_call>", "")]
)
def test_qwen_coder(text: str) -> None:
    assert read(FORMS["Qwen3-Coder"], f"Look:\n\n{text}") == [("text", "Look:"), EVENT]


def test_qwen_coder_falls_back_on_json() -> None:
    text = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
    assert read(FORMS["Qwen3-Coder"], text) == [("call", "get_time", "{}")]


def test_qwen_coder_keeps_code_as_it_is() -> None:
    code = '\n  if a < b:\n    print("</p>")\n'
    text = f"<tool_call><function=get_weather><parameter=city>\n{code}\n</parameter></function>"
    assert json.loads(read(FORMS["Qwen3-Coder"], text)[0][2]) == {"city": code}


def test_functions_that_were_not_given_need_the_outer_tag() -> None:
    text = "Write <function=name> so."
    assert read(FORMS["Qwen3-Coder"], text) == [("text", text)]


@pytest.mark.parametrize("text", [GLM_TEXT, GLM_TEXT.replace(">\n<", "><")])
def test_glm(text: str) -> None:
    assert read(FORMS["GLM-4.5"], f"{text}\n{text}") == [EVENT, EVENT]


def test_glm_without_arguments() -> None:
    for text in ("<tool_call>get_time</tool_call>", "<tool_call>get_time\n</tool_call>"):
        assert read(FORMS["GLM-4.5"], text) == [("call", "get_time", "{}")]


@pytest.mark.parametrize("text", ["<tool_call>two words</tool_call>", "<tool_call>\n</tool_call>"])
def test_glm_text(text: str) -> None:
    assert read(FORMS["GLM-4.5"], text) == [("text", text)]


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("3", {"type": "string"}, "3"),
        ("3", {"type": "integer"}, 3),
        (" 3.5\n", {"type": "number"}, 3.5),
        ("three", {"type": "integer"}, "three"),
        ("True", {"type": "boolean"}, True),
        ("none", {"type": "integer"}, None),
        ("", {"type": "array"}, []),
        ("null", {"type": ["string", "null"]}, None),
        ("nil", {"type": ["string", "null"]}, "nil"),
        ('{"a": [1]}', {"type": "object"}, {"a": [1]}),
        ("7", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 7),
        ("7", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "7"),
        ("1", {"enum": ["1", "2"]}, "1"),
        ("1", {"enum": [1, 2]}, 1),
        ("[1, 2]", {}, [1, 2]),
        ("NaN", {}, "NaN"),
        ("[" * 100_000, {}, "[" * 100_000),
    ],
)
def test_values_by_their_schema(text: str, schema: dict, value: object) -> None:
    assert json.loads(json_text(text, schema)) == value


REFERRING = Tool(
    "plan",
    "",
    {
        "type": "object",
        "properties": {"step": {"$ref": "#/$defs/step"}, "note": {"$ref": "#/$defs/text"}},
        "required": ["step"],
        "$defs": {
            "step": {"type": "object", "properties": {"to": {"$ref": "#/$defs/text"}}},
            "text": {"type": "string"},
        },
    },
)


def test_references_in_a_schema() -> None:
    text = (
        "<tool_call>plan\n<arg_key>step</arg_key><arg_value>{}</arg_value>"
        "<arg_key>note</arg_key><arg_value>{}</arg_value></tool_call>"
    )
    (event,) = read(FORMS["GLM-4.5"], text, tools=[REFERRING])
    assert event == ("call", "plan", '{"step": {}, "note": "{}"}')
    tokenizer = small_tokenizer()
    grammar = CallGrammar(tokenizer, FORMS["GLM-4.5"].markers)
    lark = grammar.text(FORMS["GLM-4.5"].expression(grammar, [REFERRING], False))
    assert is_accepted(tokenizer, lark, FORMS["GLM-4.5"].write([("plan", {"step": {"to": "x"}})]))
    assert not is_accepted(tokenizer, lark, FORMS["GLM-4.5"].write([("plan", {"step": "x"})]))


def test_what_may_be_a_string_needs_no_quotes() -> None:
    schema = {"type": "object", "properties": {"note": {"type": ["string", "null"]}}}
    tool = Tool("keep", "", schema)
    for form in (FORMS["Qwen3-Coder"], FORMS["GLM-4.5"], FORMS["MiniMax M2"]):
        tokenizer = small_tokenizer()
        grammar = CallGrammar(tokenizer, form.markers)
        lark = grammar.text(form.expression(grammar, [tool], False))
        for text, value in (("so", "so"), ("null", None), ('"so"', '"so"')):
            written = form.write([("keep", {"note": text})])
            assert is_accepted(tokenizer, lark, written)
            assert json.loads(read(form, written, tools=[tool])[0][2]) == {"note": value}


def test_minimax() -> None:
    text = (
        '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">New\nYork'
        '</parameter>\n<parameter name="days">3</parameter>\n</invoke>\n'
        '<invoke name="get_time">\n</invoke>\n</minimax:tool_call>'
    )
    assert read(FORMS["MiniMax M2"], text) == [EVENT, ("call", "get_time", "{}")]
    assert read(FORMS["MiniMax M2"], text.replace("get_weather", "two words"))[0][0] == "text"


def test_grammar_keeps_strings_free() -> None:
    tokenizer = small_tokenizer(shown=FORMS["Qwen3-Coder"].markers)
    grammar = CallGrammar(tokenizer, FORMS["Qwen3-Coder"].markers)
    lark = grammar.text(FORMS["Qwen3-Coder"].expression(grammar, TOOLS, False))
    call = ("get_weather", {"city": 'def f():\n\treturn "<b>" # </param\n', "days": 2})
    assert is_accepted(tokenizer, lark, FORMS["Qwen3-Coder"].write([call]))
