"""JSON schemas: rewritten keywords, what is not enforced, limits of digits."""

import json
from typing import Any

import jsonschema
import pytest
from walks import follows, goes_on, may_end, random_answer

from sharpi.constraints.grammar_constraint import MAX_DIGITS
from sharpi.constraints.grammars import Grammars
from sharpi.constraints.json_schema import rewritten_schema
from sharpi.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("quick_children")
NULL = {"type": "null"}
PAIR: dict[str, Any] = {
    "type": "object",
    "properties": {"a": NULL, "b": NULL},
    "additionalProperties": False,
}
KIND = {"properties": {"kind": {"const": "a"}}, "required": ["kind"]}
KINDS: dict[str, Any] = {
    "type": "object",
    "properties": {"kind": {"enum": ["a", "b"]}, "n": {"type": "integer"}},
    "additionalProperties": False,
}
# A schema, values that it allows and values that it does not.
CASES: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "dependentRequired": (
        PAIR | {"dependentRequired": {"a": ["b"]}},
        [{}, {"b": None}, {"a": None, "b": None}],
        [{"a": None}],
    ),
    "dependentRequired beside other types": (
        {k: v for k, v in PAIR.items() if k != "type"} | {"dependentRequired": {"a": ["b"]}},
        [{}, 1, "x", [], {"a": None, "b": None}],
        [{"a": None}],
    ),
    "dependencies of names and of schemas": (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {"a": NULL, "b": {"type": "integer"}, "c": NULL},
            "additionalProperties": False,
            "dependencies": {
                "a": {"properties": {"b": {"const": 1}}, "required": ["b"]},
                "c": ["a"],
            },
        },
        [{}, {"b": 5}, {"a": None, "b": 1}, {"a": None, "b": 1, "c": None}],
        [{"a": None}, {"a": None, "b": 5}, {"c": None}],
    ),
    "dependentSchemas": (
        PAIR | {"dependentSchemas": {"a": {"required": ["b"]}}},
        [{}, {"b": None}, {"a": None, "b": None}],
        [{"a": None}],
    ),
    "if then else": (
        KINDS | {"if": KIND, "then": {"required": ["n"]}, "else": {"properties": {"n": False}}},
        [{"kind": "a", "n": 1}, {"kind": "b"}, {}],
        [{"kind": "a"}, {"kind": "b", "n": 1}, {"n": 1}],
    ),
    "if within allOf, about properties listed outside": (
        KINDS
        | {
            "required": ["kind"],
            "allOf": [
                {"if": KIND, "then": {"required": ["n"]}},
                {
                    "if": {"properties": {"kind": {"enum": ["b"]}}},
                    "then": {"properties": {"n": {"maximum": 3}}},
                },
            ],
        },
        [{"kind": "a", "n": 9}, {"kind": "b"}, {"kind": "b", "n": 3}],
        [{"kind": "a"}, {"kind": "b", "n": 9}, {}],
    ),
    "if a property is there": (
        PAIR | {"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": True},
        [{}, {"b": None}, {"a": None, "b": None}],
        [{"a": None}],
    ),
    "if an object": (
        {
            "type": ["object", "integer"],
            "if": {"type": "object"},
            "then": {"maxProperties": 0},
            "else": {"minimum": 5},
        },
        [{}, 5],
        [{"a": 1}, 4, "x"],
    ),
    "if true, if false": (
        {
            "type": "integer",
            "allOf": [
                {"if": True, "then": {"minimum": 3}, "else": False},
                {"if": False, "then": False, "else": {"maximum": 5}},
            ],
        },
        [3, 5],
        [2, 6],
    ),
    "if alone": ({"type": "boolean", "if": {"const": True}}, [True, False], [1]),
    "then alone": ({"type": "boolean", "then": False}, [True], [1]),
    "names of keywords": (
        {
            "type": "object",
            "properties": {"not": NULL, "if": NULL, "dependencies": NULL},
            "required": ["not"],
            "additionalProperties": False,
        },
        [{"not": None}, {"not": None, "if": None, "dependencies": None}],
        [{"if": None}],
    ),
    "no objection to repeated items": (
        {"type": "array", "items": NULL, "uniqueItems": False},
        [[None, None]],
        [[1]],
    ),
    "numbers of other properties": (
        {"type": "object", "additionalProperties": NULL, "minProperties": 1, "maxProperties": 2},
        [{"a": None}, {"a": None, "b": None}],
        [{}, {"a": None, "b": None, "c": None}],
    ),
    "numbers of properties that say nothing new": (
        PAIR | {"required": ["a"], "minProperties": 1, "maxProperties": 2},
        [{"a": None}, {"a": None, "b": None}],
        [{}],
    ),
    "unknown format": ({"type": "string", "format": "password"}, ["x"], [1]),
    "known format": ({"type": "string", "format": "date"}, ["2024-02-29"], ["x"]),
    "recursion": (
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}},
        [[], [[], [[]]]],
        [1, [1]],
    ),
}
DEPENDENT = {f"{number}": [f"{number + 1}"] for number in range(40)}
# A schema, what is not enforced in it, and a value that is allowed for that reason.
NOTED: dict[str, tuple[Any, tuple[str, ...], Any]] = {
    "uniqueItems": ({"type": "array", "uniqueItems": True}, ("uniqueItems",), [1, 1]),
    "each keyword once": (
        {"prefixItems": [{"not": NULL} | PAIR | {"minProperties": 1}] * 2, "not": {"maxItems": 1}},
        ("minProperties", "not"),
        [{}],
    ),
    "if of any text": (
        {
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "if": {"properties": {"a": {"const": "x"}}},
            "then": False,
        },
        ("if", "then"),
        {"a": "x"},
    ),
    "oneOf that overlaps": (
        {"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 3}]},
        ("oneOf (several branches may fit)",),
        "x",
    ),
    "numbers of properties that may be missing": (
        PAIR | {"minProperties": 1, "maxProperties": 1},
        ("maxProperties", "minProperties"),
        {"a": None, "b": None},
    ),
    "patterns": (
        {
            "type": "object",
            "properties": {
                "a": {"type": "string", "pattern": "^(?!__)[a-z]+$"},
                "b": {"type": "string", "pattern": r"\bfoo\b", "format": "date"},
                "c": {"type": "string", "pattern": "^c$"},
            },
            "additionalProperties": False,
        },
        (r"pattern \bfoo\b", "pattern ^(?!__)[a-z]+$"),
        {"a": "__", "b": "2024-02-29", "c": "c"},
    ),
    "more dependencies than can be combined": (
        {"type": "object", "properties": dict.fromkeys(DEPENDENT, NULL)}
        | {"dependentRequired": DEPENDENT},
        ("dependentRequired",),
        {"0": None},
    ),
}


@pytest.fixture(scope="module")
def grammars(demo: Tokenizer) -> Grammars:
    return Grammars(demo)


def allows(grammars: Grammars, tokenizer: Tokenizer, schema: Any, value: Any) -> bool:
    constraint = grammars.json_schema(schema)
    text = json.dumps(value, ensure_ascii=False)
    return follows(constraint, tokenizer, text) and may_end(constraint, tokenizer)


@pytest.mark.parametrize("name", CASES)
def test_what_fits_and_what_does_not(grammars: Grammars, demo: Tokenizer, name: str) -> None:
    schema, fitting, others = CASES[name]
    before = json.dumps(schema)
    assert grammars.json_schema(schema).note == ""
    assert json.dumps(schema) == before
    for value in fitting:
        jsonschema.validate(value, schema)
        assert allows(grammars, demo, schema, value), value
    for value in others:
        assert not allows(grammars, demo, schema, value), value


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_finished_answer_validates(grammars: Grammars, demo: Tokenizer, name: str) -> None:
    schema = CASES[name][0]
    for seed in range(4):
        answer = random_answer(grammars.json_schema(schema), demo, seed, max_tokens=5000)
        jsonschema.validate(json.loads(answer), schema)


@pytest.mark.parametrize("name", NOTED)
def test_what_is_not_enforced_is_named(grammars: Grammars, demo: Tokenizer, name: str) -> None:
    schema, unenforced, value = NOTED[name]
    for _ in range(2):  # compiled, then cached
        constraint = grammars.json_schema(schema)
        assert constraint.unenforced == unenforced
        assert constraint.note == f"not enforced in the JSON schema: {', '.join(unenforced)}"
    assert allows(grammars, demo, schema, value)


def test_nested_conditions_stay_small() -> None:
    schema: Any = {"type": "integer"}
    for _ in range(90):
        schema = KINDS | {"if": KIND, "then": {"required": ["n"]}, "else": schema}
    assert len(json.dumps(rewritten_schema(schema))) < 5 * len(json.dumps(schema))


@pytest.mark.parametrize(
    ("kind", "parts"),
    [("integer", ["-1"]), ("number", ["1", ".1", "e1"]), ("object", ['{"a": 1', ".1", "E+1"])],
)
def test_a_number_ends(grammars: Grammars, demo: Tokenizer, kind: str, parts: list[str]) -> None:
    constraint = grammars.json_schema({"type": kind})
    for part in parts:
        assert follows(constraint, demo, part + "1" * (MAX_DIGITS - 1))
        assert not goes_on(constraint, demo.encode_inside("1")[0])
    assert follows(constraint, demo, "}" if kind == "object" else "")
    assert may_end(constraint, demo)


def test_digits_of_texts_and_of_what_must_be_long_are_free(
    grammars: Grammars, demo: Tokenizer
) -> None:
    long = "1" * (MAX_DIGITS + 5)
    for value in ([long, '"' + long, "\\" + long], {long: long}):
        assert allows(grammars, demo, {}, value)
    assert follows(grammars.lark(f"start: /[0-9]{{{len(long)}}}/", is_json=True), demo, long)
    assert follows(grammars.lark("start: /[0-9]+/"), demo, long)


def test_a_compiled_schema_is_kept(grammars: Grammars, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"type": "object", "properties": {"kept": {"type": "boolean"}}}
    first = grammars.json_schema(schema)

    def fail(self: Grammars, grammar: str) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(Grammars, "_compile", fail)
    assert grammars.json_schema(schema) is not first
