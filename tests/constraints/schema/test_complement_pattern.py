"""Patterns of what a pattern does not match, beside Python's own regular expressions."""

import random
import re
from itertools import product

import pytest

from sharpi.constraints.patterns.automaton import automaton_of
from sharpi.constraints.patterns.characters import complement, escaped, in_class
from sharpi.constraints.patterns.infinite import is_infinite
from sharpi.constraints.schema.complement_pattern import complement_pattern
from sharpi.constraints.schema.pattern import Pattern

LETTERS = "abx-1 _"
PATTERNS = [
    "^x-", "a|b", "^a|b$", "^[ab]{2,3}$", "^a?(b|x)*$", "[^ ]", r"^\d+(-[ab]+)?$", r"^\S+\s\w$",
    "a{2,}b", "^(x|-){1,2}1$", "^[^\\d]+$", "^.a.b?$", "^$", r"^[\s\S]{3}", "^(a|ab)(x|bx)$",
    "a+?b",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_matches_the_texts_that_the_pattern_does_not(pattern: str) -> None:
    found = complement_pattern(pattern)
    assert found is not None
    mine = re.compile(found)
    texts = ["".join(each) for size in range(5) for each in product(LETTERS, repeat=size)]
    for text in texts:
        assert bool(mine.search(text)) is not bool(re.search(pattern, text)), text
    followed = Pattern(found)
    for text in random.Random(0).sample(texts, 60):
        assert followed.matches(text) is bool(mine.search(text)), text


@pytest.mark.parametrize("pattern", ["", ".*", "^", "a*", r"^[\s\S]*$"])
def test_what_matches_everything(pattern: str) -> None:
    assert complement_pattern(pattern) is None


def test_leaves_out_what_only_some_programs_match() -> None:
    digits, none = (
        Pattern(str(complement_pattern(r"^\d$"))),
        Pattern(str(complement_pattern(r"\D"))),
    )
    for text in ("1", "1\n", "\u0661"):
        assert not digits.matches(text), text
    assert digits.matches("a")
    assert none.matches("11")
    assert not none.matches("\u0661")


def test_a_shortest_text() -> None:
    assert automaton_of(r"^x-\d{2}[A-Z]").shortest() == "x-00A"
    assert automaton_of("^[\u0416]$").shortest() == "\u0416"
    assert automaton_of("a*").shortest() == ""
    assert automaton_of("a*").shortest(accepted=False) is None
    assert automaton_of("^a{0,2}$").shortest(accepted=False) == "b"


@pytest.mark.parametrize(
    "pattern", ["", "^a", r"^[A-Za-z_]\w*$", "^.+$", "a+$", "^(ab?)+$", r"[^/]+"]
)
def test_endless(pattern: str) -> None:
    assert is_infinite(pattern)


@pytest.mark.parametrize(
    "pattern", ["^a?$", "^(a+|b)$", r"^\d+x$", "^[ab]{2,9}$", "^\x01+$", "^(\\w|[a-z0-9A-Z_]\\w*)$"]
)
def test_not_endless(pattern: str) -> None:
    assert not is_infinite(pattern)


def test_sets_of_characters() -> None:
    assert complement(complement(((5, 9), (20, 30)))) == ((5, 9), (20, 30))
    assert in_class([("RANGE", (97, 99)), ("LITERAL", 100)]) == ((97, 100),)
    assert in_class([("NEGATE", None), ("CATEGORY", "CATEGORY_DIGIT")]) == complement(((48, 57),))
    assert escaped("\n") == r"\u000a"
    assert re.fullmatch(escaped("\U0001f600"), "\U0001f600")
