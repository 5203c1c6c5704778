"""Arrays whose items have to differ: random answers differ, are valid, and always end."""

import json
from itertools import product
from typing import Any

import jsonschema
import pytest
from walks import follows, may_end, random_answer

from sharpi.constraints.grammars import Grammars
from sharpi.constraints.patterns.automaton import automaton_of
from sharpi.constraints.schema.unique_items import unique_items
from sharpi.constraints.uniqueness.canonical_json import (
    CanonicalContainer,
    canonical_scalar,
    plain_literal,
)
from sharpi.constraints.uniqueness.number_range import NumberRange
from sharpi.constraints.uniqueness.string_set import StringSet
from sharpi.errors import GrammarError
from sharpi.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("quick_children")
SHORT = {"type": "string", "maxLength": 4}
NAMED = {
    "type": "object",
    "properties": {"name": SHORT, "kind": {"enum": ["a", "b"]}},
    "required": ["name", "kind"],
    "additionalProperties": False,
}
OPTIONAL = NAMED | {"required": []}
POINT = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}


def array(items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "uniqueItems": True, "items": items, **more}


def closed(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    """Returns a schema of objects with these properties alone."""
    found = {"type": "object", "properties": properties, "required": list(required)}
    return {**found, "additionalProperties": False}


def upto(last: int) -> dict[str, Any]:
    """Returns a schema of integers from 0 on."""
    return {"type": "integer", "minimum": 0, "maximum": last}


# Items of every kind; few values are asked for nearly all that there are.
ARRAYS = {
    "digits": array({"type": "integer", "minimum": -3, "maximum": 3}, minItems=6),
    "many integers": array({"type": "integer", "minimum": 8, "maximum": 23}, minItems=15),
    "integers": array({"type": "integer"}, minItems=4),
    "multiples": array(
        {"type": "integer", "multipleOf": 7, "minimum": -20, "maximum": 80}, minItems=12
    ),
    "numbers": array({"type": "number"}, minItems=4),
    "fractions": array({"type": "number", "minimum": 0, "exclusiveMaximum": 1}, minItems=5),
    "few letters": array({"type": "string", "pattern": "^[ab]{1,3}$"}, minItems=13),
    "a code": array({"type": "string", "pattern": "^\\d[xy]$"}, minItems=19),
    "limited": array(SHORT, minItems=4),
    "of one letter": array({"type": "string", "minLength": 1, "maxLength": 1}, minItems=8),
    "enum": array({"enum": [*"abcdefgh", 1, 2, None, True]}, minItems=12),
    "one of enums": array(
        {"type": "string", "oneOf": [{"enum": ["a", "b"]}, {"enum": ["b", "c", "d"]}]}, minItems=3
    ),
    "dates": array({"type": "string", "format": "date"}, minItems=3),
    "addresses": array({"type": "string", "format": "email"}, minItems=3),
    "identities": array({"type": "string", "format": "uuid"}, minItems=3),
    "links": array({"type": "string", "format": "uri"}, minItems=3),
    "any": array(True, minItems=4),
    "union": array(
        {"anyOf": [{"type": "boolean"}, {"enum": ["x"]}, {"type": "integer", "minimum": 0}]},
        minItems=5,
    ),
    "objects": array(NAMED, minItems=4),
    "optional": array(OPTIONAL, minItems=4),
    "open": array({"type": "object", "properties": {"a": {"type": "boolean"}}}, minItems=4),
    "points": array(POINT, minItems=4),
    "sets": array(array({"type": "integer", "minimum": 0}, minItems=1), minItems=3),
    "objects or texts": array({"oneOf": [NAMED, SHORT]}, minItems=4),
    "nested": array(
        {"type": "object", "properties": {"at": NAMED}, "required": ["at"]}, minItems=3
    ),
    "referred": {
        "$defs": {"item": NAMED},
        **array({"$ref": "#/$defs/item"}, minItems=3),
    },
    "nested and optional": array(
        {"type": "object", "properties": {"at": OPTIONAL}, "additionalProperties": False},
        minItems=3,
    ),
    "ids": array(
        closed({"id": upto(9999), "kind": {"enum": ["a", "b"]}}, "id", "kind"), minItems=4
    ),
    "few ids": array(
        closed({"id": upto(4), "kind": {"enum": ["a", "b"]}}, "id", "kind"), minItems=5
    ),
    "few optional": array(closed({"kind": {"enum": ["a", "b", None]}}), minItems=3),
    "few nested": array(
        closed({"at": closed({"x": upto(2)}, "x"), "y": upto(1)}, "at"), minItems=3
    ),
    "few or texts": array({"anyOf": [closed({"id": upto(3)}, "id"), SHORT]}, minItems=4),
    "few in two kinds": array(
        {"anyOf": [closed({"id": upto(3), "a": upto(1)}, "id"), closed({"id": upto(3)}, "id")]},
        minItems=4,
    ),
    "without name": {"type": "array", "items": array(SHORT, minItems=2), "minItems": 2},
    "any name": {"type": "object", "additionalProperties": array({"type": "integer"}, minItems=2)},
}


@pytest.fixture(scope="module")
def grammars(demo: Tokenizer) -> Grammars:
    return Grammars(demo)


@pytest.mark.slow
@pytest.mark.parametrize("name", ARRAYS)
def test_answers_differ_and_end(grammars: Grammars, demo: Tokenizer, name: str) -> None:
    validator = jsonschema.Draft202012Validator(ARRAYS[name])
    for seed in range(3):
        text = random_answer(grammars.json_schema(ARRAYS[name]), demo, seed, max_tokens=6000)
        validator.validate(json.loads(text))


@pytest.mark.parametrize(
    ("name", "text", "is_allowed"),
    [
        ("digits", "[1, 2, 1", False),
        ("digits", "[1, 2, 3, 0, -1, -2, -3]", True),
        ("digits", "[0, -0", False),
        ("numbers", "[1, 1.0,", False),
        ("numbers", "[1, 1e0", False),
        ("numbers", "[1, 1.5, 15, -1]", True),
        ("enum", '["h", "a", null, 2, true, 1, "c"', True),
        ("objects", '[{"name": "a", "kind": "a"}, {"name": "b", "kind": "a"}', True),
        ("objects", '[{"name": "a", "kind": "a"}, {"name": "a"', False),
        ("ids", '[{"id": 7, "kind": "a"}, {"id": 8, "kind": "a"}', True),
        ("ids", '[{"id": 7, "kind": "a"}, {"id": 7, ', False),
        ("few optional", '[{"kind": "a"}, {"kind": null}, {"kind": "b"}]', True),
        ("few optional", '[{"kind": "a"}, {"kind": null}, {"kind": "b"},', False),
        ("few optional", '[{"kind": "a"}, {"kind": "a', False),
        ("open", '[{}, {"a": true}, {"b": 1}, {"b": 2}]', True),
        ("open", "[{}, {}", False),
        ("open", '[{"a": true, "b": 1}, {"a": true, "b": 1.0}', False),
        ("points", "[[1, 2], [1, 3], [2, 2], [0, 0]]", True),
        ("points", "[[1, 2], [1, 2", True),
        ("points", "[[1, 2], [1, 2]", False),
        ("without name", '[["a", "b"], ["a", "b"]]', True),
        ("without name", '[["a", "a"', False),
        ("any", '[{"a": 1}, {"a": [1]}, "a", 1, [], [1]]', True),
        ("any", "[[1], [1]", False),
    ],
)
def test_what_may_be_written(
    grammars: Grammars, demo: Tokenizer, name: str, text: str, is_allowed: bool
) -> None:
    constraint = grammars.json_schema(ARRAYS[name])
    assert follows(constraint, demo, text) == is_allowed


def test_an_array_of_all_values_ends(grammars: Grammars, demo: Tokenizer) -> None:
    constraint = grammars.json_schema(array({"enum": [*range(9)]}))
    assert follows(constraint, demo, "[3, 1, 2, 0, 8, 7, 6, 5, 4")
    assert not follows(constraint, demo, ",")
    constraint = grammars.json_schema(array({"enum": [*range(9)]}))
    assert follows(constraint, demo, "[3, 1, 2, 0, 8, 7, 6, 5, 4]")
    assert may_end(constraint, demo)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (
            array(
                {"type": "object", "properties": {"a": {"enum": [1]}}}
                | {"additionalProperties": False}
            ),
            "few values",
        ),
        (array({"type": "string", "pattern": "^[ab]$"}, minItems=3), "3 items"),
        (array(closed({"id": upto(4)}, "id"), minItems=6), "6 items"),
        (array({"type": "number", "multipleOf": 0.1}), "multiples"),
        (array({"type": "string", "not": {"const": "a"}}), "with not"),
        (array({"type": "string"}, contains={"const": "a"}), "contains"),
    ],
)
def test_what_is_refused_has_a_reason(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(GrammarError, match=f"uniqueItems .*{reason}"):
        unique_items(schema)


def test_definitions_that_no_value_has_to_keep_do_not_matter() -> None:
    unused = array({"type": "number", "multipleOf": 0.1})
    found = unique_items({"type": "object", "$defs": {"a": {"items": unused}}})
    assert found.plan == []
    assert "uniqueItems" not in json.dumps(found.schema)


def test_a_schema_of_very_many_places_is_refused() -> None:
    def branch(i: int) -> dict[str, Any]:
        return {"properties": {f"p{i}": array({"type": "string"}), "q": {"$ref": "#/$defs/a"}}}

    schema = {"$defs": {"a": {"anyOf": [branch(i) for i in range(3000)]}}, "$ref": "#/$defs/a"}
    with pytest.raises(GrammarError, match="in so large a schema"):
        unique_items(schema)


def test_keys_of_equal_values() -> None:
    for texts in (
        ("1", "1.0", "10e-1", "0.1E1"),
        ("0", "-0", "0.0", "0e9"),
        ('"a/"', '"\\u0061\\/"'),
    ):
        assert len({canonical_scalar(text.encode()) for text in texts}) == 1
    numbers = ("1", "-1", "10", "0.1", "12", "1.2", "0.012", "120")
    assert len({canonical_scalar(text.encode()) for text in numbers}) == len(numbers)
    assert [plain_literal(canonical_scalar(text.encode())) for text in numbers] == [
        text.encode() for text in numbers
    ]
    assert CanonicalContainer({b'"a"': b"1e0", b'"b"': b"x"}) == CanonicalContainer(
        {b'"b"': b"x", b'"a"': b"1e0"}
    )
    assert CanonicalContainer((b"1e0",)) != CanonicalContainer((b"1e0", b"1e0"))


@pytest.mark.parametrize(
    ("low", "high", "step"), [(-12, 130, 1), (0, 99, 1), (-7, 50, 5), (9, 9, 1)]
)
def test_integers_are_counted(low: int, high: int, step: int) -> None:
    from fractions import Fraction

    numbers = NumberRange(Fraction(low), Fraction(high), step=step)
    every = [str(value) for value in range(low, high + 1) if value % step == 0]
    for prefix in {text[:end] for text in every for end in range(len(text) + 1)} | {
        "-0",
        "01",
        "x",
    }:
        num = sum(text.startswith(prefix) for text in every)
        found = next(most for most in range(999) if not numbers.has_more(prefix.encode(), most))
        assert found == num, prefix


@pytest.mark.parametrize(
    ("pattern", "low", "high", "letters"),
    [("^[ab]*c?$", 1, 3, "abc"), ("^(ab|ba){0,2}$", 0, None, "ab"), ("^x?y$", 0, 9, "xy")],
)
def test_texts_are_counted(pattern: str, low: int, high: int | None, letters: str) -> None:
    import re

    texts = StringSet(automaton_of(pattern, ends_strictly=True), low, high)
    words = ["".join(word) for size in range(6) for word in product(letters, repeat=size)]
    every = [
        word
        for word in words
        if re.search(pattern, word) and len(word) >= low and (high is None or len(word) <= high)
    ]
    for prefix in words:
        num = sum(word.startswith(prefix) for word in every)
        found = next(most for most in range(9999) if not texts.has_more(prefix.encode(), most))
        assert found == num, prefix


def test_letters_of_several_bytes_are_counted() -> None:
    texts = StringSet(automaton_of("^[aéè€]$", ends_strictly=True))
    nums = {b"": 4, b"\xc3": 2, "é".encode(): 1, b"\xe2\x82": 1, b"\xe2": 1, b"\\": 0, b"\xd0": 0}
    for prefix, num in nums.items():
        assert texts.has_more(prefix, num - 1)
        assert not texts.has_more(prefix, num)
