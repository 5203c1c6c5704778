"""Splits that follow a model's own rules where llama.cpp's differ."""

import pytest
from tokenizers import Regex, pre_tokenizers

from sharpi.tokenizer.pre_tokenizers import find_pre_tokenizer


def cuts(name: str, text: str) -> list[str]:
    rules = find_pre_tokenizer(name)
    assert rules is not None
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rules.patterns]
    return [word for word, _ in pre_tokenizers.Sequence(splits).pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x  1234567 y", ["x", "  ", "1", "234", "567", " y"]),
        ("a\u4e00\u4e8cb.c", ["a", "\u4e00\u4e8c", "b", ".c"]),
    ],
)
def test_afmoe(text: str, expected: list[str]) -> None:
    assert cuts("afmoe", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("return  1\r\n", ["return", "  ", "1", "\r\n"]),
        ("It's 1234567 HTTPServer's", ["It's", " ", "1", "234", "567", " HTTPServer's"]),
        ("a12b 12345x", ["a", "12", "b", " ", "123", "45", "x"]),
        ("\u00c9COLE \u00c9t\u00e9 //\n", ["\u00c9COLE", " \u00c9t\u00e9", " //\n"]),
    ],
)
def test_cohere2moe(text: str, expected: list[str]) -> None:
    assert cuts("cohere2moe", text) == expected


def test_jais_2_splits_blanks_into_powers_of_two() -> None:
    words = cuts("jais-2", "a" + " " * 12 + "b1234\n\n  \n" + " " * 513 + "c")
    assert words == ["a", " " * 8, "  ", " ", " b", "123", "4", "\n\n  \n", " " * 512, " c"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("camelCase isn't", ["camel", "Case", " isn't"]),
        ("\u4e00\u4e8cab 1234", ["\u4e00\u4e8c", "ab", " ", "123", "4"]),
    ],
)
def test_kimi_k2(text: str, expected: list[str]) -> None:
    assert cuts("kimi-k2", text) == expected
