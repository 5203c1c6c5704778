"""JSON schemas with keywords that are rewritten: what fits, what does not, and what is refused."""

import json
import resource
import time
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from walks import follows, may_end, random_answer

from sharpi.constraints.child_processes import run_child
from sharpi.constraints.grammars import Grammars
from sharpi.constraints.schema import costly
from sharpi.constraints.schema.budget import Budget
from sharpi.constraints.schema.json_schema import (
    PLAIN,
    RewritingOptions,
    grammar_of_schema,
    rewritten_schema,
)
from sharpi.constraints.schema.other_strings import other_strings
from sharpi.constraints.schema.pattern import Pattern
from sharpi.constraints.schema.rewriting import Rewriting
from sharpi.constraints.schema.unique_items import unique_items
from sharpi.errors import GrammarError
from sharpi.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("quick_children")
KIND = {"properties": {"kind": {"const": "a"}}, "required": ["kind"]}
PAIR = {
    "type": "object",
    "properties": {"kind": {"enum": ["a", "b"]}, "n": {"type": "integer"}},
    "required": ["kind"],
    "additionalProperties": False,
}
LETTERS = {
    "type": "object",
    "properties": {name: {"type": "integer"} for name in "abc"},
    "additionalProperties": False,
}
LEAF = {
    "properties": {"leaf": {"type": "integer"}},
    "required": ["leaf"],
    "additionalProperties": False,
}
# A schema, values that it allows and values that it does not.
CASES: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "not a type": ({"not": {"type": ["string", "object", "array"]}}, [1, None, True], ["a", {}]),
    "not an enum": (
        {"type": "string", "not": {"enum": ["abc", "ab", "x"]}},
        ["", "a", "abd", "abcd", "xx", "\u00e9"],
        ["abc", "ab", "x"],
    ),
    "not a number": ({"type": "integer", "not": {"const": 3}}, [2, 4, -1], [3]),
    "not required": (
        {
            "type": "object",
            "properties": {"a": {"type": "null"}, "b": {"type": "null"}},
            "additionalProperties": False,
            "not": {"required": ["a", "b"]},
        },
        [{}, {"a": None}, {"b": None}],
        [{"a": None, "b": None}],
    ),
    "not within": (
        {"type": "integer", "not": {"minimum": 3, "maximum": 5}},
        [2, 6],
        [3, 4, 5],
    ),
    "not a pattern": (
        {"type": "string", "not": {"pattern": "^a|b$"}},
        ["", "b c", "ca", "\u00e9", "B"],
        ["a", "abc", "b", "cb"],
    ),
    "not a pattern of all programs": (
        {"type": "string", "not": {"pattern": r"^\d+$"}},
        ["", "a", "1a"],
        ["1", "22", "1\n", "\u0661"],
    ),
    "either of two patterns": (
        {"oneOf": [{"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "b$"}]},
        ["a", "b", "ac", "cb"],
        ["ab", "acb", "c", ""],
    ),
    "not a multiple": ({"type": "integer", "not": {"multipleOf": 3}}, [1, 2, -1], [0, 3, -6, 1.5]),
    "not a multiple, and large": (
        {"type": "integer", "minimum": 500, "not": {"multipleOf": 2}},
        [1003],
        [1000, 1002, 3, 500],
    ),
    "not a multiple of a fraction": (
        {"type": "number", "not": {"multipleOf": 0.5}},
        [0.25, 0.75, -0.25],
        [0, 1, 0.5, -2],
    ),
    "not such properties": (
        {"type": "object", "not": {"patternProperties": {"^x-": {"type": "string"}}}},
        [{"x-": 1}, {"x-": None, "b": "c"}],
        [{}, {"x-": "a"}, {"x-a": "b"}],
    ),
    "not such names": (
        {"type": "object", "not": {"propertyNames": {"maxLength": 2}}},
        [{"aaa": 1}, {"aaa": None, "b": 2}],
        [{}, {"aa": 1}, {"a": 1, "b": 2}],
    ),
    "patterns of names that overlap": (
        {
            "type": "object",
            "patternProperties": {"^a": {"type": "integer"}, "b$": {"maximum": 5}, "^x": {}},
        },
        [{"ab": 3}, {"a": 9}, {"b": 3}, {"b": "x"}, {"xb": 2}, {"c": None}],
        [{"ab": 9}, {"ab": "x"}, {"a": "x"}, {"b": 9}, {"xb": 9}],
    ),
    "patterns of names that overlap in every name": (
        {
            "type": "object",
            "patternProperties": {".*": {"type": "integer"}, "^a": {"maximum": 5}},
            "additionalProperties": False,
        },
        [{"ab": 3}, {"c": 9}],
        [{"ab": 9}, {"c": "x"}],
    ),
    "patterns of names, one of which matches every name": (
        {
            "type": "object",
            "properties": {"b": {"maximum": 7}, "xadditional": {"minimum": 1}},
            "patternProperties": {".*": {"type": "integer"}, "additional": {"maximum": 5}},
        },
        [{"b": 7, "xadditional": 3}, {"c": 9, "additionally": 5}],
        [{"b": 8}, {"b": "x"}, {"xadditional": 0}, {"xadditional": 6}, {"additionally": 6}],
    ),
    "names that are not allowed": (
        {"type": "object", "propertyNames": {"not": {"pattern": "b"}}},
        [{"a": 1}, {}],
        [{"b": 1}, {"ab": 1}],
    ),
    "a name that has to be there": (
        {"type": "object", "not": {"propertyNames": {"not": {"enum": ["b", "c"]}}}},
        [{"b": 1}, {"b": 1, "x": 2}],
        [{}, {"a": 1}],
    ),
    "patterns of names that programs may read in two options": (
        {
            "type": "object",
            "patternProperties": {"^\\d+$": {"type": "integer"}, "^\\w{1,3}$": {"maximum": 5}},
            "additionalProperties": False,
        },
        [{"12": 3}, {"ab": 3}, {"1234": 9}, {}],
        [{"12": 9}, {"ab": 9}, {"abcd": 1}, {"\u0663": 1}],
    ),
    "patterns of names, of which some are not allowed": (
        {
            "type": "object",
            "patternProperties": {"^x-": {}},
            "propertyNames": {"pattern": "^[a-z-]{1,4}$"},
            "additionalProperties": {"type": "integer"},
        },
        [{"x-a": "b"}, {"abc": 1}],
        [{"abc": "x"}, {"abcde": 1}, {"x-abc": 1}],
    ),
    "what is no keyword does not fail": (
        {"type": ["string", "null"], "not": {"type": "string", "_kind": 1}},
        [None],
        ["a", 1],
    ),
    "different texts of a pattern": (
        {"type": "array", "uniqueItems": True, "items": {"type": "string", "pattern": "^a+b*$"}},
        [[], ["a", "aa"], ["ab", "abb"]],
        [["a", "a"], ["b"], ["ab", "a", "ab"]],
    ),
    "different items of any kind": (
        {"type": "array", "uniqueItems": True},
        [[], ["a", "b"], ["1", "11"]],
        [["a", "a"], [1, 1]],
    ),
    "a property named $ref": (
        {
            "type": "object",
            "properties": {
                "$ref": {"type": "string"},
                "all": {"type": "array", "uniqueItems": True, "items": {"type": "string"}},
            },
        },
        [{"$ref": "a", "all": ["a", "b"]}],
        [{"$ref": 1}, {"all": ["a", "a"]}],
    ),
    "not not": ({"not": {"not": {"type": "boolean"}}}, [True, False], [1, None]),
    "not any": ({"not": {"anyOf": [{"type": "string"}, {"const": 1}]}}, [2, None], ["a", 1]),
    "one of, told apart behind references": (
        {
            "$defs": {"a": {"enum": ["a"]}, "n": {"type": "number"}},
            "oneOf": [
                KIND | {"properties": {"kind": {"$ref": "#/$defs/a"}}, "type": "object"},
                {"type": "object", "properties": {"kind": False}, "required": ["n"]},
                {"$ref": "#/$defs/n"},
                {"enum": ["text", None]},
            ],
        },
        [{"kind": "a"}, {"n": 1}, 3, "text", None],
        [{"kind": "b"}, {}, "a"],
    ),
    "one of numbers that are equal": (
        {"oneOf": [{"enum": [1.0, 2]}, {"enum": [1, 3]}]},
        [2, 3],
        [1, 4],
    ),
    "at least one property": (
        LETTERS | {"minProperties": 1},
        [{"a": 1}, {"c": 1}, {"a": 1, "b": 1, "c": 1}],
        [{}, {"d": 1}],
    ),
    "at most one property": (LETTERS | {"maxProperties": 1}, [{}, {"b": 1}], [{"a": 1, "c": 1}]),
    "exactly two properties": (
        LETTERS | {"required": ["b"], "minProperties": 2, "maxProperties": 2},
        [{"a": 1, "b": 1}, {"b": 1, "c": 1}],
        [{"b": 1}, {"a": 1, "c": 1}, {"a": 1, "b": 1, "c": 1}],
    ),
    "no property": (LETTERS | {"maxProperties": 0}, [{}], [{"a": 1}]),
    "more properties than there are names": (
        LETTERS | {"additionalProperties": True, "minProperties": 4},
        [{"a": 1, "b": 1, "c": 1, "x": 2}],
        [{"a": 1, "b": 1, "c": 1}, {"a": 1, "x": 1, "y": 1, "z": 1, "b": "1"}],
    ),
    "at most two properties, named or not": (
        LETTERS | {"additionalProperties": True, "maxProperties": 2},
        [{}, {"a": 1}, {"x": 1, "y": 1}, {"a": 1, "b": 1}],
        [{"x": 1, "y": 1, "z": 1}, {"a": 1, "x": 1, "y": 1}],
    ),
    "many names": (
        {
            "type": "object",
            "properties": {f"n{number}": {"type": "integer"} for number in range(12)},
            "additionalProperties": False,
            "minProperties": 5,
            "maxProperties": 7,
        },
        [{f"n{number}": 1 for number in range(5)}, {f"n{number}": 1 for number in range(5, 12)}],
        [{f"n{number}": 1 for number in range(4)}, {f"n{number}": 1 for number in range(8)}],
    ),
    "recursive, with more beside the references": (
        {
            "$ref": "#/$defs/any",
            "$defs": {
                "any": {"type": "object", "anyOf": [{"$ref": "#/$defs/pair"}, LEAF]},
                "pair": {
                    "properties": {name: {"$ref": "#/$defs/any"} for name in "ab"},
                    "required": ["a", "b"],
                    "additionalProperties": False,
                },
            },
        },
        [{"leaf": 1}, {"a": {"leaf": 1}, "b": {"a": {"leaf": 2}, "b": {"leaf": 3}}}],
        [{}, {"a": {"leaf": 1}}, {"a": {"leaf": 1}, "b": {"leaf": "1"}}],
    ),
    "recursive, with more beside the reference to itself": (
        {
            "$ref": "#/$defs/node",
            "$defs": {
                "node": {
                    "type": "object",
                    "properties": {
                        "n": {"type": "integer"},
                        "next": {"$ref": "#/$defs/node", "required": ["n"], "minProperties": 1},
                    },
                    "additionalProperties": False,
                },
            },
        },
        [{}, {"next": {"n": 1}}, {"n": 1, "next": {"n": 2, "next": {"n": 3}}}],
        [{"next": {}}, {"next": {"next": {"n": 1}}}, {"next": {"n": "1"}}],
    ),
    "a pattern of one name beside a wider one": (
        {
            "type": "object",
            "patternProperties": {"^[a-z]+$": {"type": "integer"}, "^ab$": {"minimum": 5}},
            "additionalProperties": False,
        },
        [{}, {"ab": 5}, {"x": 1}],
        [{"ab": 4}, {"x": "1"}, {"1": 1}],
    ),
    "a pattern of a few names": (
        {
            "type": "object",
            "patternProperties": {"^([a-c]|no)$": {"type": "integer"}},
            "additionalProperties": False,
            "minProperties": 3,
            "dependentRequired": {"a": ["b"], "b": ["a"]},
        },
        [{"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 2, "no": 3}],
        [{}, {"a": 1, "b": 1}, {"a": 1, "c": 1, "no": 1}, {"a": 1, "b": 1, "x": 1}],
    ),
    "a pattern of a few names beside a wider one": (
        {
            "type": "object",
            "patternProperties": {"^x-": {"type": "integer"}, "^(x-a|b)$": {"minimum": 5}},
            "additionalProperties": False,
        },
        [{}, {"b": "text", "x-a": 5}, {"x-b": 1}],
        [{"x-a": 4}, {"x-a": "5"}, {"b": 4}, {"x-b": "1"}],
    ),
    "names by pattern beside a pattern that all names match": (
        {
            "type": "object",
            "propertyNames": {"pattern": "^[a-z]+$"},
            "patternProperties": {".*": {"type": "integer"}},
        },
        [{}, {"ab": 5}],
        [{"AB": 5}, {"ab": "5"}],
    ),
    "a schema in a place of its own": (
        {"$ref": "#/things/one", "things": {"one": {"type": "integer", "not": {"const": 3}}}},
        [2, 4],
        [3, "3"],
    ),
    "unique, in an older draft": (
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "type": "array",
            "uniqueItems": True,
            "items": {"enum": ["a", "b", 1]},
        },
        [[], ["a"], [1, "a", "b"], ["b", "a"]],
        [["a", "a"], ["a", 1, "a"], ["x"], [2, 2]],
    ),
    "a property of the name of a keyword, in an older draft": (
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "type": "object",
            "properties": {"const": {"type": "integer"}, "prefixItems": {"type": "null"}},
            "additionalProperties": False,
        },
        [{}, {"const": 1}, {"const": 1, "prefixItems": None}],
        [{"const": "a"}, {"prefixItems": 1}, {"items": 1}],
    ),
    "contains, in an older draft": (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "array",
            "items": {"type": "integer"},
            "contains": {"const": 3},
        },
        [[3], [1, 3], [3, 1]],
        [[], [1], ["3"], [3, "a"], [1, 2]],
    ),
    "unique": (
        {"type": "array", "uniqueItems": True, "items": {"enum": ["a", "b", 1]}},
        [[], ["a"], [1, "a", "b"], ["b", "a"]],
        [["a", "a"], ["a", 1, "a"]],
    ),
    "unique of a reference": (
        {
            "type": "array",
            "uniqueItems": True,
            "minItems": 2,
            "items": {"$ref": "#/$defs/bool"},
            "$defs": {"bool": {"type": "boolean"}},
        },
        [[True, False], [False, True]],
        [[], [True], [True, True]],
    ),
    "unique texts": (
        {
            "type": "object",
            "properties": {
                "tags": {"$ref": "#/$defs/tags"},
                "other": {"type": "array", "items": {"type": "string"}},
            },
            "additionalProperties": False,
            "$defs": {
                "tags": {"type": "array", "uniqueItems": True, "items": {"type": "string"}},
            },
        },
        [
            {"tags": []},
            {"tags": ["a", "b", "ab", ""], "other": ["a", "a"]},
            {"tags": ['say "hi"', 'say "ho"', "a,b", "[", "\n", "\u00e9"]},
        ],
        [
            {"tags": ["a", "a"]},
            {"tags": ["", "b", ""]},
            {"tags": ["a", "b", "c", "b"]},
            {"tags": ['say "hi"', 'say "hi"']},
            {"tags": ["\n", "\n"]},
            {"tags": ["\u00e9", "\u00e9"]},
        ],
    ),
    "unique texts as a whole document": (
        {
            "type": "array",
            "uniqueItems": True,
            "items": {"type": "string", "minLength": 1, "title": "Tag"},
            "minItems": 2,
        },
        [["a", "b"], ["ab", "a", "abc"]],
        [["a"], ["a", "a"], ["a", "b", "a"]],
    ),
    "unique of one": (
        {"type": "array", "uniqueItems": True, "maxItems": 1, "items": {"type": "integer"}},
        [[], [5]],
        [[5, 6]],
    ),
    "unique of many": (
        {"type": "array", "uniqueItems": True, "items": {"enum": list(range(40))}},
        [[], [7], [3, 9]],
        [[3, 3]],
    ),
    "if then else": (
        PAIR | {"if": KIND, "then": {"required": ["n"]}, "else": {"properties": {"n": False}}},
        [{"kind": "a", "n": 1}, {"kind": "b"}],
        [{"kind": "a"}, {"kind": "b", "n": 1}],
    ),
    "if alone": ({"type": "boolean", "if": {"const": True}}, [True, False], [1]),
    "then alone": ({"type": "boolean", "then": False}, [True], [1]),
    "dependentRequired": (
        {
            "type": "object",
            "properties": {"a": {"type": "null"}, "b": {"type": "null"}},
            "additionalProperties": False,
            "dependentRequired": {"a": ["b"]},
        },
        [{}, {"b": None}, {"a": None, "b": None}],
        [{"a": None}],
    ),
    "dependencies": (
        {
            "type": "object",
            "properties": {"a": {"type": "null"}, "b": {"type": "integer"}},
            "additionalProperties": False,
            "dependencies": {"a": {"properties": {"b": {"const": 1}}, "required": ["b"]}},
        },
        [{}, {"b": 5}, {"a": None, "b": 1}],
        [{"a": None}, {"a": None, "b": 5}],
    ),
    "contains": (
        {"type": "array", "items": {"type": "integer"}, "maxItems": 3, "contains": {"const": 7}},
        [[7], [1, 7], [7, 7, 1], [1, 2, 7]],
        [[], [1, 2], [1, 2, 3]],
    ),
    "propertyNames": (
        {
            "type": "object",
            "propertyNames": {"enum": ["a", "b"]},
            "additionalProperties": {"type": "integer"},
        },
        [{}, {"a": 1}],
        [{"c": 1}, {"a": "x"}],
    ),
    "propertyNames by length": (
        {"type": "object", "propertyNames": {"maxLength": 2}, "additionalProperties": {"const": 1}},
        [{"ab": 1}],
        [{"abc": 1}],
    ),
    "oneOf that overlaps": (
        {"oneOf": [{"type": "integer", "minimum": 3}, {"type": "integer", "maximum": 5}]},
        [2, 6],
        [3, 4, 5],
    ),
    "oneOf required": (
        {
            "type": "object",
            "properties": {"a": {"type": "null"}, "b": {"type": "null"}},
            "additionalProperties": False,
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        [{"a": None}, {"b": None}],
        [{}, {"a": None, "b": None}],
    ),
    "unknown format": ({"type": "string", "format": "password"}, ["x"], [1]),
    "unevaluatedProperties": (
        {"type": "object", "properties": {"a": {}}, "unevaluatedProperties": False},
        [{"a": 1}],
        [{"b": 1}],
    ),
    "names of keywords": (
        {
            "type": "object",
            "properties": {"not": {"type": "null"}, "if": {"type": "null"}},
            "required": ["not"],
            "additionalProperties": False,
        },
        [{"not": None}, {"not": None, "if": None}],
        [{"if": None}],
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
    for value in fitting:
        assert allows(grammars, demo, schema, value), value
    for value in others:
        assert not allows(grammars, demo, schema, value), value


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.skipif(find_spec("jsonschema") is None, reason="jsonschema is not installed")
def test_every_finished_answer_validates(grammars: Grammars, demo: Tokenizer, name: str) -> None:
    import jsonschema

    schema = CASES[name][0]
    for seed in range(4):
        answer = random_answer(grammars.json_schema(schema), demo, seed, max_tokens=5000)
        jsonschema.validate(json.loads(answer), schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "not": {"pattern": "^(?!a)"}},
        {"type": "string", "not": {"pattern": "(?i)a"}},
        {"type": "string", "not": {"pattern": "("}},
        {"type": "string", "not": {"pattern": r"a\b"}},
        {"type": "string", "not": {"pattern": "((a{1000}){1000}){1000}"}},
        {"type": "string", "not": {"pattern": "(((){1000}){1000}){1000}"}},
        {"type": "string", "not": {"pattern": "a.{40}b"}},
        {"type": "string", "not": {"pattern": ""}},
        {"type": "integer", "not": {"multipleOf": 0}},
        {"not": {"$ref": "#/nowhere"}},
        {"not": {"$ref": "#/not"}},
        {"not": {}},
        {"type": "array", "contains": {"const": 1}, "maxItems": 0},
        {"dependentRequired": [1]},
        {"type": "object", "minProperties": 2},
        {"type": "object", "properties": {"a": {}}, "minProperties": 3},
    ],
)
def test_what_cannot_be_enforced_is_refused_in_one_line(grammars: Grammars, schema: Any) -> None:
    with pytest.raises(GrammarError) as caught:
        grammars.json_schema(schema)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("^[a-d]$", ["a", "b", "c", "d"]),
        ("^(ab|cd?)$", ["c", "ab", "cd"]),
        ('^a"b$', ['a"b']),
        ("^$", [""]),
        ("^a*$", None),
        ("a", None),
        ("^a{1000}$", None),
    ],
)
def test_the_texts_of_a_pattern(pattern: str, texts: list[str] | None) -> None:
    assert Pattern(pattern).texts(16) == texts


def test_no_name_counts_twice(grammars: Grammars, demo: Tokenizer) -> None:
    schema = {"type": "object", "patternProperties": {"^[ab]$": {}}, "minProperties": 2}
    constraint = grammars.json_schema(schema | {"additionalProperties": False})
    assert not follows(constraint, demo, '{"a": 1, "a": 2')


def test_other_texts() -> None:
    import re

    texts = ["a", "abc", "", "x.y", "\u00e9"]
    pattern = other_strings(texts).replace("\\u{2e}", "\\.")
    for text in texts:
        assert not re.search(pattern, text)
    for text in ("b", "ab", "abcd", "x", "xzy", "x.yz", "\u00e9\u00e9", "\n"):
        assert re.search(pattern, text), text


def test_a_schema_is_not_changed() -> None:
    for schema, _, _ in CASES.values():
        before = json.dumps(schema)
        Rewriting(unique_items(schema).schema, Budget(), splits_one_of=True).rewritten()
        assert json.dumps(schema) == before


def test_a_compiled_schema_is_kept(grammars: Grammars, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"type": "object", "properties": {"kept": {"type": "boolean"}}}
    first = grammars.json_schema(schema)

    def fail(self: Grammars, grammar: str) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(Grammars, "_compile", fail)
    assert grammars.json_schema(schema) is not first


def bombs() -> dict[str, Any]:
    """Returns schemas of a few kilobytes that stand for more than memory holds."""
    recursive = {
        "oneOf": [
            {"properties": {name: {"items": {"$ref": "#/$defs/a"}}, "b": {"$ref": "#/$defs/a"}}}
            for name in "xyz"
        ]
    }
    sets = {"type": "array", "uniqueItems": True, "items": {"enum": [1, 2, 3, 4, 5, 6]}}
    words = {"enum": [f"word {number}" for number in range(3000)]}
    negated = [{"not": {"$ref": "#/$defs/a"}}] * 500
    nested: Any = {"const": 0}
    for _ in range(40):
        nested = {"oneOf": [nested, {"minimum": 1}]}
    return {
        "recursive": {"$ref": "#/$defs/a", "$defs": {"a": recursive}},
        "sets": {"properties": {str(number): sets for number in range(3000)}},
        "a large set": {"uniqueItems": True, "items": words},
        "negated often": {"anyOf": negated, "$defs": {"a": words}},
        "nested": nested,
    }


def rewrite_bomb(name: str) -> None:
    with suppress(GrammarError):
        for splits in (False, True):
            grammar_of_schema(bombs()[name], RewritingOptions(splits_one_of=splits))


@pytest.mark.speed
@pytest.mark.parametrize("name", bombs())
def test_schemas_that_explode_take_bounded_time(grammars: Grammars, name: str) -> None:
    """The processor time is a few times that of the largest schema that is allowed."""
    start = time.process_time()
    rewrite_bomb(name)
    assert time.process_time() - start < 10


@pytest.mark.slow
@pytest.mark.parametrize("name", bombs())
def test_schemas_that_explode_are_refused_in_bounded_memory(grammars: Grammars, name: str) -> None:
    rewrite_bomb(name)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2 << 20  # KiB


def test_a_schema_that_becomes_many_is_rewritten_in_a_child(
    demo: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = {"type": "object", "not": {"required": [f"{number}" for number in range(550)]}}
    grammars, asked = Grammars(demo), []

    def ask(module: str, text: str) -> Any:
        asked.append(module)
        return run_child(module, text)

    monkeypatch.setattr(costly, "run_child", ask)
    monkeypatch.setattr("sharpi.constraints.grammars.MAX_SCHEMAS_HERE", 500)
    first, second = grammars.json_schema(schema), grammars.json_schema(schema)
    assert asked == ["sharpi.constraints.schema.costly"]
    assert np.array_equal(first.allowed(), second.allowed())
    assert grammars._rewritten(schema, PLAIN) == grammar_of_schema(schema)


def test_a_refusal_by_a_child_is_kept(demo: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    grammars = Grammars(demo)
    with pytest.raises(GrammarError, match="more than 100000 others"):
        grammars.json_schema(bombs()["recursive"])
    monkeypatch.setattr(costly, "run_child", lambda module, text: pytest.fail("asked again"))
    with pytest.raises(GrammarError, match="more than 100000 others"):
        grammars.json_schema(bombs()["recursive"])


def test_a_child_that_breaks_its_bounds_is_a_refusal(
    demo: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costly, "run_child", lambda module, text: None)
    with pytest.raises(GrammarError, match="within 2 s and 1 GiB"):
        Grammars(demo).json_schema(bombs()["recursive"])


def test_names_are_matched_in_bounded_time(grammars: Grammars) -> None:
    names = {"a" * 60: {"type": "null"}, "a" * 60 + "!": {"type": "null"}}
    schema = {"type": "object", "propertyNames": {"pattern": "^(a+)+$"}, "properties": names}
    assert rewritten_schema(schema)["properties"] == {
        "a" * 60: {"type": "null"},
        "a" * 60 + "!": False,
    }
