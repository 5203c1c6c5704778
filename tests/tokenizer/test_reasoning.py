"""Separating reasoning from the answer, however the text is split."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sharpi.tokenizer.reasoning import (
    KNOWN_MARKERS,
    THINK,
    ReasoningMarkers,
    ReasoningSplitter,
    find_markers,
    opens_reasoning,
)
from sharpi.tokenizer.tokenizer import Tokenizer
from sharpi.tokenizer.vocabulary import Vocabulary


def split(
    *pieces: str, starts_inside: bool = False, markers: ReasoningMarkers = THINK
) -> list[tuple[str, str]]:
    """Returns all pieces, with adjacent ones of one kind joined."""
    splitter = ReasoningSplitter(starts_inside, markers)
    found: list[tuple[str, str]] = []
    for kind, text in [part for piece in pieces for part in splitter.feed(piece)] + [
        *splitter.flush()
    ]:
        if found and found[-1][0] == kind:
            text = found.pop()[1] + text
        found.append((kind, text))
    return found


def test_block_and_answer() -> None:
    assert split("<think>hm</think>Yes") == [("reasoning", "hm"), ("answer", "Yes")]


def test_plain_answer() -> None:
    assert split("a < b", " and <thin", "g>") == [("answer", "a < b and <thing>")]


def test_unclosed_block() -> None:
    assert split("<think>", "hm </thi") == [("reasoning", "hm </thi")]


def test_template_that_opened_the_block() -> None:
    pieces = split("hm", "</think>", "Yes", starts_inside=True)
    assert pieces == [("reasoning", "hm"), ("answer", "Yes")]


def test_certain_text_does_not_wait() -> None:
    splitter = ReasoningSplitter()
    assert list(splitter.feed("so <th")) == [("answer", "so ")]
    assert list(splitter.feed("e end")) == [("answer", "<the end")]
    assert list(splitter.flush()) == []


@pytest.mark.slow
@pytest.mark.parametrize("markers", KNOWN_MARKERS)
@given(data=st.data())
def test_cuts_change_nothing(markers: ReasoningMarkers, data: st.DataObject) -> None:
    parts = st.sampled_from([markers.opening, markers.closing, "<", "think", "/", "a", "[T", " "])
    text = "".join(data.draw(st.lists(parts, max_size=12)))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))))
    edges = [0, *cuts, len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    inside = data.draw(st.booleans())
    whole = split(text, starts_inside=inside, markers=markers)
    assert split(*pieces, starts_inside=inside, markers=markers) == whole


@pytest.mark.parametrize(
    ("prompt", "opened"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("What does <think> mean?<|im_end|>\n<|im_start|>assistant\n", False),
        ("", False),
    ],
)
def test_prompt_that_opens_reasoning(prompt: str, opened: bool) -> None:
    assert opens_reasoning(prompt) is opened


def test_markers_of_a_model(byte_level: Vocabulary) -> None:
    assert find_markers(Tokenizer(byte_level)) == THINK
    silent = Vocabulary("gpt2", tokens=["a"], kinds=[1])
    assert find_markers(Tokenizer(silent)) is None
    template = replace(silent, chat_template="{{ '[THINK]' }}{{ '[/THINK]' }}")
    assert find_markers(Tokenizer(template)) == KNOWN_MARKERS[1]
