"""Tests of the words that sharpi.errors offers for misspelt ones."""

import pytest

from sharpi.errors import close_matches, did_you_mean

OPTIONS = (
    *("--load", "--raw", "--ram", "--isa", "--disable", "--file", "--ngl", "--prompt", "--temp"),
    *("--temperature", "--top-k", "--top-p", "--context-shift"),
)


@pytest.mark.parametrize("word", ["--lora", "--image", "--config", "--mirostat", "--mmproj", "x"])
def test_words_that_are_not_close_are_not_offered(word: str) -> None:
    assert did_you_mean(word, OPTIONS) == ""


@pytest.mark.parametrize(
    ("word", "close"),
    [
        ("--tmep", ["--temp"]),
        ("--TEMP", ["--temp", "--temperature"]),
        ("temprature", ["--temperature"]),
        ("--top", ["--top-k", "--top-p"]),
        ("--context", ["--context-shift"]),
    ],
)
def test_misspellings_and_beginnings(word: str, close: list[str]) -> None:
    assert close_matches(word, OPTIONS) == close


def test_the_closest_names_come_first() -> None:
    names = ["Qwen/Qwen3-30B-A3B-GGUF", "Qwen/Qwen3-4B-GGUF", "other/thing"]
    assert close_matches("qwen/qwen3-30b-a3b-guf", names)[0] == names[0]
    assert did_you_mean("runs", ["ruins", "run", "chat"], most=2) == "; did you mean ruins or run?"
