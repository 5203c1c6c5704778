"""Reasoning in tags and in gpt-oss's channels, split for display."""

import pytest

from sharpi.dialogue.reasoning_splitter import ReasoningSplitter, without_channels

REASONING = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
ANSWER = "<|channel|>final<|message|>Paris"


def test_pieces() -> None:
    splitter = ReasoningSplitter("<|start|>assistant")
    pieces = [piece for letter in REASONING + ANSWER for piece in splitter.feed(letter)]
    pieces += splitter.flush()
    text = {"reasoning": "", "answer": ""}
    for kind, part in pieces:
        text[kind] += part
    assert text == {"reasoning": "Hm.", "answer": "Paris"}


@pytest.mark.parametrize(
    ("prompt", "answer", "reasoning", "text"),
    [
        ("", "<think>hm</think>Yes", "hm", "Yes"),
        ("", "a < b and <thing>", "", "a < b and <thing>"),
        ("", "<think>hm </thi", "hm </thi", ""),
        ("<think>\n", "hm\n</think>\n\nYes", "hm", "Yes"),
        ("<mm:think>", "hm</mm:think>Yes", "hm", "Yes"),
    ],
)
def test_reasoning_in_tags(prompt: str, answer: str, reasoning: str, text: str) -> None:
    for size in (1, 3, len(answer)):
        splitter = ReasoningSplitter(prompt)
        found = {"reasoning": "", "answer": ""}
        for at in range(0, len(answer), size):
            for kind, part in splitter.feed(answer[at : at + size]):
                found[kind] += part
        for kind, part in splitter.flush():
            found[kind] += part
        assert found == {"reasoning": reasoning, "answer": text}


def test_answer_alone() -> None:
    assert without_channels(REASONING + ANSWER) == "Paris"
    assert without_channels(ANSWER) == "Paris"
    assert without_channels(REASONING) == ""
    assert without_channels(" Paris\n") == " Paris\n"


def test_prompts_that_open_channels() -> None:
    for prompt, kinds in (
        ("<|end|><|start|>assistant", ["reasoning", "answer"]),
        ("x", ["answer"]),
    ):
        splitter = ReasoningSplitter(prompt)
        pieces = [*splitter.feed(REASONING + ANSWER), *splitter.flush()]
        assert list(dict.fromkeys(kind for kind, _ in pieces)) == kinds
