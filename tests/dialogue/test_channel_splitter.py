"""gpt-oss's channels, split for display."""

from sharpi.dialogue.formats.harmony import ChannelSplitter, opens_channels, without_channels

REASONING = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
ANSWER = "<|channel|>final<|message|>Paris"


def test_pieces() -> None:
    splitter = ChannelSplitter()
    pieces = [piece for letter in REASONING + ANSWER for piece in splitter.feed(letter)]
    pieces += splitter.flush()
    text = {"reasoning": "", "answer": ""}
    for kind, part in pieces:
        text[kind] += part
    assert text == {"reasoning": "Hm.", "answer": "\n\nParis"}


def test_answer_alone() -> None:
    assert without_channels(REASONING + ANSWER) == "Paris"
    assert without_channels(ANSWER) == "Paris"
    assert without_channels(REASONING) == ""
    assert without_channels(" Paris\n") == " Paris\n"


def test_prompts_that_open_channels() -> None:
    assert opens_channels("<|end|><|start|>assistant")
    assert not opens_channels("<|im_start|>assistant\n")
