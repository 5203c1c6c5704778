"""Docstrings begin with one plain sentence: a subject and a verb, or a noun, and a period."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAX_WORDS = 30

# Openings that leave the subject to be guessed, as in "Those of one host." or "Whether it fits."
REFUSED = ("Those", "That", "Of", "Whose", "What", "Whether", "As", "Its", "Who", "Where")

_END = re.compile(r"(?<!\.\.)(?<=\.)\s")
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """The line and the text of each docstring."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text


def first_sentence(text: str) -> str:
    """The first sentence of the first paragraph, on one line."""
    return _END.split(" ".join(text.split("\n\n")[0].split()))[0]


def complaints(text: str) -> Iterator[str]:
    """One complaint for each rule that a docstring breaks."""
    sentence = first_sentence(text)
    words = sentence.split()
    if not sentence.endswith("."):
        yield "has no period"
    if len(words) > MAX_WORDS:
        yield f"has {len(words)} words"
    if words and re.split(r"\W", words[0])[0] in REFUSED:
        yield f"begins with {words[0]}"


def docstrings_of_modules() -> Iterator[tuple[str, str]]:
    """The place and the text of each docstring that is held to the rules."""
    for path in sorted((ROOT / "sharpi").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        for line, text in docstrings(path.read_text(encoding="utf-8")):
            yield f"{name}:{line}", text


def test_first_sentences_are_plain() -> None:
    texts = list(docstrings_of_modules())
    assert len(texts) > 500
    assert [
        f"{place}: {complaint}: {first_sentence(text)}"
        for place, text in texts
        for complaint in complaints(text)
    ] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((f"{word} of one host.", f"begins with {word}") for word in REFUSED),
        ("That, or another.", "begins with That,"),
        ("Returns the routes of one host", "has no period"),
        ("Returns the routes of one host\n\nRaises OSError.", "has no period"),
        ("Returns " + "the routes of one host or " * 5 + "more.", "has 32 words"),
    ],
)
def test_a_planted_violation_is_found(text: str, expected: str) -> None:
    source = f'class Routes:\n    def all(self):\n        """{text}"""\n'
    [(line, found)] = docstrings(source)
    assert line == 3
    assert list(complaints(found)) == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "Launches the RMS-norm kernel.",
        "Assigns an offset. What is freed is used again.",
        "Splits `<a>` ... `</a>` into parts.\n\nThose of one host come first.",
        "Returns the routes\nof one host.",
    ],
)
def test_plain_sentences_pass(text: str) -> None:
    assert list(complaints(text)) == []
