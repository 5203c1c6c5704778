"""Arrays whose free texts have to differ: how tokens may spell and end them."""

import json
import random

import pytest
from walks import allowed_ids, follows

from sharpi.constraints.grammars import Grammars
from sharpi.constraints.open_json import OpenJson
from sharpi.constraints.quote_tokens import QuoteTokens
from sharpi.constraints.schema.free_texts import unique_texts
from sharpi.errors import GrammarError
from sharpi.tokenizer.tokenizer import Tokenizer

TEXTS = {"type": "array", "uniqueItems": True, "items": {"type": "string"}}
TAGS = {"type": "object", "properties": {"tags": TEXTS}, "required": ["tags"]}
FEW = b'ab"\\u0061,'


@pytest.fixture(scope="module")
def grammars(demo: Tokenizer) -> Grammars:
    return Grammars(demo)


def test_no_second_spelling(grammars: Grammars, demo: Tokenizer) -> None:
    for text in ('["a", "\\u0061"', '["/", "\\/"', '["\\"", "\\u0022"'):
        assert not follows(grammars.json_schema(TEXTS), demo, text)


def test_texts_of_few_letters_differ_and_never_end_in_a_dead_end(
    grammars: Grammars, demo: Tokenizer
) -> None:
    few = [token for token in range(demo.vocab_size) if demo.token_bytes(token) in FEW.split()]
    few += [t for t in range(demo.vocab_size) if len(demo.token_bytes(t)) < 4]
    few = [t for t in few if set(demo.token_bytes(t)) <= set(FEW)]
    for seed in range(20):
        chance, constraint, text = random.Random(seed), grammars.json_schema(TEXTS), b""
        for _ in range(60):
            ids = allowed_ids(constraint.allowed(), demo)
            assert ids, text
            token = chance.choice(sorted(ids & set(few)) or sorted(ids - demo.end_ids))
            constraint.accept(token)
            text += demo.token_bytes(token)
        whole = text[: text.rfind(b'",') + 1] + b"]"
        if len(whole) > 1:
            found = json.loads(whole)
            assert len(set(found)) == len(found)


class TestOpenJson:
    def test_watches_arrays_by_name(self) -> None:
        reader = OpenJson({b"tags"})
        reader.read(b'{"tags": ["a", "b\\"c"')
        assert reader.texts == {b"a", b'b\\"c'}
        reader.read(b'], "more": {"tags": ["x"')
        assert reader.texts == {b"x"}
        reader.read(b'], "other": ["x", "begun')
        assert reader.texts is None
        assert reader.text == bytearray(b"begun")

    def test_a_string_that_is_a_value_names_nothing(self) -> None:
        reader = OpenJson({b"tags"})
        reader.read(b'{"a": "tags", "b": ["x"')
        assert reader.texts is None

    def test_knows_an_escape_that_has_begun(self) -> None:
        reader = OpenJson({b""})
        for data, is_begun in ((b'["a\\', True), (b"\\", False), (b"\\", True), (b'"', False)):
            reader.read(data)
            assert reader.is_after_backslash is is_begun
        assert reader.texts == set()


def test_tokens_that_end_a_text() -> None:
    tokens = [b'"', b'a"', b'",', b'a\\"', b'a\\""', b"a", b'","b']
    quotes = QuoteTokens(tokens)
    assert quotes.ending(b"") == [0, 2, 6]
    assert quotes.ending(b"a") == [1]
    assert quotes.ending(b'a\\"') == [4]
    assert quotes.ending(b"b") == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": TEXTS},
        {"type": "object", "additionalProperties": TEXTS},
        {"properties": {"tags": TEXTS, "more": {"properties": {"tags": {"enum": [["a", "a"]]}}}}},
        {
            "properties": {"tags": TEXTS},
            "patternProperties": {"^t": {"type": "array", "items": {"enum": ["a"]}}},
        },
    ],
)
def test_what_might_come_to_a_dead_end_is_refused(schema: dict[str, object]) -> None:
    with pytest.raises(GrammarError, match="uniqueItems of texts"):
        unique_texts(schema)


def test_the_names_of_arrays() -> None:
    found = unique_texts(TAGS)
    assert found.names == {"tags"}
    assert "uniqueItems" in json.dumps(TAGS)
    assert "uniqueItems" not in json.dumps(found.schema)
    assert unique_texts(TEXTS).names == {""}
    assert unique_texts({"type": "object"}).names == set()
