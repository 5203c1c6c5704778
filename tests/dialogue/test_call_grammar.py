"""Lists of required and optional items in grammars."""

import pytest
from answers import is_accepted, small_tokenizer

from sharpi.dialogue.call_grammar import CallGrammar, arguments_schema


@pytest.mark.parametrize(
    ("needed", "right", "wrong"),
    [
        ("", ["-"], ["-a"]),
        ("A", ["-a"], ["-", "-a,a"]),
        ("a", ["-", "-a"], ["-,"]),
        ("abC", ["-c", "-a,c", "-b,c", "-a,b,c"], ["-", "-a", "-a,b", "-,c", "-b,a,c"]),
        ("aBc", ["-b", "-a,b", "-b,c", "-a,b,c"], ["-a", "-a,c", "-c", "-"]),
        ("ab", ["-", "-a", "-b", "-a,b"], ["-b,a", "-,b", "-a,"]),
    ],
)
def test_lists(needed: str, right: list[str], wrong: list[str]) -> None:
    tokenizer = small_tokenizer()
    grammar = CallGrammar(tokenizer, ())
    items = [(grammar.literal(name.lower()), name.isupper()) for name in needed]
    lark = grammar.text(f'"-" {grammar.listed(items, ",")}')
    assert [text for text in right + wrong if is_accepted(tokenizer, lark, text)] == right


def test_markers_are_tokens_where_there_are_such() -> None:
    tokenizer = small_tokenizer(control=("<a>",), shown=("<b>",))
    grammar = CallGrammar(tokenizer, ("<a>", "<b>", "<c>"))
    assert grammar.literal('x<a><b>"<c>') == '"x" <[257]> <[258]> "\\"<c>"'
    assert grammar.literal("") == ""


def test_arguments_are_those_of_the_schema() -> None:
    named = {"properties": {"a": {}}}
    assert arguments_schema(named)["additionalProperties"] is False
    for more in ({"additionalProperties": True}, {"anyOf": []}, {"patternProperties": {}}):
        assert arguments_schema({**named, **more}).get("additionalProperties") is not False
    assert arguments_schema({}) == {"type": "object"}
