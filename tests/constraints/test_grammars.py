"""Grammars over every kind of vocabulary: allowed tokens, ends and refusals."""

import json
import time
from typing import Any

import pytest
from walks import allowed_ids, follows, may_end, random_answer

from sharpi.constraints.grammars import MAX_BYTES, Grammars
from sharpi.errors import GrammarError
from sharpi.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("quick_children")
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["red", "gr\u00fcn"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
LIST: dict[str, Any] = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "v": {"type": "boolean"},
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            },
            "required": ["v", "next"],
            "additionalProperties": False,
        }
    },
}


@pytest.fixture(scope="session")
def grammars(tokenizer: Tokenizer) -> Grammars:
    return Grammars(tokenizer)


@pytest.fixture(scope="session")
def demo_grammars(demo: Tokenizer) -> Grammars:
    return Grammars(demo)


class TestJson:
    @pytest.mark.parametrize("seed", range(15))
    def test_any_walk_ends_as_the_schema_says(
        self, grammars: Grammars, tokenizer: Tokenizer, seed: int
    ) -> None:
        person = json.loads(random_answer(grammars.json_schema(PERSON), tokenizer, seed))
        assert list(person) == ["name", "age", "tags"]
        assert isinstance(person["name"], str)
        assert 1 <= len(person["name"]) <= 12
        assert type(person["age"]) is int
        assert 0 <= person["age"] <= 150
        assert set(person["tags"]) <= {"red", "gr\u00fcn"}
        assert len(person["tags"]) <= 3

    @pytest.mark.parametrize("seed", range(4))
    def test_any_object(self, grammars: Grammars, tokenizer: Tokenizer, seed: int) -> None:
        answer = random_answer(grammars.json_object(), tokenizer, seed, max_tokens=20_000)
        assert isinstance(json.loads(answer), dict)

    @pytest.mark.parametrize(
        "text",
        [
            '{"name": "a b", "age": 7, "tags": []}',
            '{"name":"\U0001f600\u00e9\u4f60","age":150,"tags":["gr\u00fcn"]}',
            '{\n  "name": "\u00e9\\n",\n  "age": 0,\n  "tags": [\n    "red"\n  ]\n}',
        ],
    )
    def test_what_fits(self, grammars: Grammars, tokenizer: Tokenizer, text: str) -> None:
        constraint = grammars.json_schema(PERSON)
        assert follows(constraint, tokenizer, text)
        assert may_end(constraint, tokenizer)
        assert constraint.may_end
        assert constraint.is_finished

    @pytest.mark.parametrize(
        "text",
        ['{"name": ""', '{"age"', '{"name": "a", "age": 151', "[", " {", '{"name": "a\n"', "{}"],
    )
    def test_what_does_not(self, grammars: Grammars, tokenizer: Tokenizer, text: str) -> None:
        assert not follows(grammars.json_schema(PERSON), tokenizer, text)

    def test_it_ends_where_it_is_whole_and_nowhere_else(
        self, grammars: Grammars, tokenizer: Tokenizer
    ) -> None:
        constraint = grammars.json_schema({"type": "array", "items": {"type": "integer"}})
        for letter in "[1, 23]":
            assert not may_end(constraint, tokenizer)
            assert follows(constraint, tokenizer, letter)
        assert allowed_ids(constraint.allowed(), tokenizer) == tokenizer.end_ids

    @pytest.mark.parametrize("blank", [" ", "\n", "\t"])
    def test_blanks_come_to_an_end(
        self, grammars: Grammars, tokenizer: Tokenizer, blank: str
    ) -> None:
        constraint = grammars.json_object()
        assert follows(constraint, tokenizer, "{")
        assert not follows(constraint, tokenizer, "\n" + blank * 25)

    def test_a_schema_may_refer_to_itself(self, grammars: Grammars, tokenizer: Tokenizer) -> None:
        constraint = grammars.json_schema(LIST)
        depth = 30
        text = '{"v": true, "next": ' * depth + "null" + "}" * depth
        assert follows(constraint, tokenizer, text)
        assert may_end(constraint, tokenizer)

    def test_an_answer_has_a_constraint_of_its_own(
        self, demo_grammars: Grammars, demo: Tokenizer
    ) -> None:
        first, second = demo_grammars.json_object(), demo_grammars.json_object()
        assert follows(first, demo, '{"a": 1}')
        assert follows(second, demo, '{"b": 2}')

    def test_a_schema_does_not_change_how_it_is_read(
        self, demo_grammars: Grammars, demo: Tokenizer
    ) -> None:
        guided = {"type": "object", "x-guidance": {"whitespace_pattern": " *", "lenient": True}}
        constraint = demo_grammars.json_schema(guided)
        assert follows(constraint, demo, "{")
        assert not follows(constraint, demo, "  ")


class TestVocabularies:
    def test_control_tokens_are_no_text(self, grammars: Grammars, tokenizer: Tokenizer) -> None:
        constraint = grammars.lark("start: /(?s:.*)/")
        hidden = tokenizer.hidden_ids - tokenizer.end_ids
        assert not allowed_ids(constraint.allowed(), tokenizer) & hidden

    def test_a_control_token_comes_where_the_grammar_names_it(self, gemma: Tokenizer) -> None:
        call = gemma.id_of("<call>")
        for named in ("<call>", f"<[{call}]>"):
            constraint = Grammars(gemma).lark(f'start: {named} "a"')
            assert allowed_ids(constraint.allowed(), gemma) == {call}
            constraint.accept(call or 0)
            assert follows(constraint, gemma, "a")

    def test_bytes_spell_what_no_piece_has(self, gemma: Tokenizer) -> None:
        constraint = Grammars(gemma).lark('start: "\u00e9"')
        for byte in "\u00e9".encode():
            expected = gemma.id_of(f"<0x{byte:02X}>")
            assert allowed_ids(constraint.allowed(), gemma) == {expected}
            constraint.accept(expected or 0)
        assert constraint.may_end

    def test_half_a_character_cannot_end(self, gemma: Tokenizer) -> None:
        constraint = Grammars(gemma).lark("start: /(?s:.*)/")
        assert may_end(constraint, gemma)
        constraint.accept(gemma.id_of("<0xC3>") or 0)
        assert not may_end(constraint, gemma)

    def test_without_an_end_token_no_grammar_could_end(self, demo: Tokenizer) -> None:
        class Endless(Tokenizer):
            end_ids = frozenset[int]()  # type: ignore[assignment]

        with pytest.raises(GrammarError, match="no end token"):
            Grammars(Endless(demo.vocabulary)).json_object()


def nested(depth: int) -> Any:
    schema: Any = {"type": "integer"}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


REFUSED_SCHEMAS: list[Any] = [
    7,
    False,
    {"type": "nonsense"},
    {"dependentRequired": [1]},
    {"type": "string", "minLength": 3, "maxLength": 2},
    {"enum": []},
    {"$ref": "#/$defs/absent"},
    {"$ref": "file:///etc/hostname"},
    {"$ref": "http://127.0.0.1:9/schema"},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    {"type": "number", "minimum": float("nan")},
    {"enum": ["x" * MAX_BYTES]},
    nested(900),
    {"type": "integer", "multipleOf": 10_000_019},
    {"allOf": [{"type": "string", "pattern": f"(a|b)*a(a|b){{{n}}}c"} for n in range(5, 20)]},
    {
        "$ref": "#/$defs/d0",
        "$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(5000)}
        | {"d5000": {"type": "null"}},
    },
]


class TestRefused:
    @pytest.mark.parametrize("schema", REFUSED_SCHEMAS, ids=lambda each: str(each)[:40])
    def test_schemas(self, demo_grammars: Grammars, schema: Any) -> None:
        refused(lambda: demo_grammars.json_schema(schema))

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "start: (",
            "start: absent",
            'start: "a',
            "start: x\nx: x",
            "start: <nothing>",
            "\ud800",
        ],
    )
    def test_lark(self, demo_grammars: Grammars, text: str) -> None:
        refused(lambda: demo_grammars.lark(text))

    def test_long_chains_of_rules(self, demo_grammars: Grammars) -> None:
        rules = "\n".join(f'R{n}: "b" R{n + 1} "d" | "c"' for n in range(8000))
        refused(lambda: demo_grammars.lark(f'start: R0\n{rules}\nR8000: "x"'))

    @pytest.mark.parametrize("text", ["(", "a{3,2}", "(?<=a)b", "(" * 5000])
    def test_regular_expressions(self, demo_grammars: Grammars, text: str) -> None:
        refused(lambda: demo_grammars.lark(f"start: /{text}/"))

    @pytest.mark.speed
    def test_an_ambiguous_grammar_takes_bounded_time_a_step(
        self, demo_grammars: Grammars, demo: Tokenizer
    ) -> None:
        constraint = demo_grammars.lark('start: s\ns: s s | s s s | "a" |')
        letter = demo.encode_inside("a")[0]
        for _ in range(60):
            begin = time.monotonic()
            constraint.allowed()
            constraint.accept(letter)
            assert time.monotonic() - begin < 2

    def test_a_token_that_was_not_allowed(self, demo_grammars: Grammars, demo: Tokenizer) -> None:
        constraint = demo_grammars.lark('start: "a"')
        with pytest.raises(GrammarError):
            constraint.accept(demo.encode_inside("b")[0])


def refused(compile_it: Any) -> None:
    """Asserts an error of one line with bounded length."""
    with pytest.raises(GrammarError) as caught:
        compile_it()
    assert 10 < len(str(caught.value)) <= 300
    assert "\n" not in str(caught.value)
    assert "<state>" not in str(caught.value)
