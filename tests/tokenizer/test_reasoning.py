"""The markers of reasoning that a model has, and prompts that end within reasoning."""

import pytest
from msgspec.structs import replace

from sharpi.tokenizer.reasoning import (
    KNOWN_MARKERS,
    THINK,
    find_markers,
    opens_reasoning,
)
from sharpi.tokenizer.tokenizer import Tokenizer
from sharpi.tokenizer.vocabulary import Vocabulary


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
