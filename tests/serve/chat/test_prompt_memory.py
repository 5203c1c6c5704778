"""Stored ids of conversations: the model's own, where a text has several tokenizations."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_host import scripted_tokenizer

from sharpi.serve.chat import prompt_tokens
from sharpi.serve.chat.prompt_tokens import MARK, PlainContents, PromptLimit, PromptMemory

TOKENIZER = scripted_tokenizer()
END = 257


def letters(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_bos=False, parse_special=True)


def test_an_answer_keeps_the_tokens_it_was_chosen_with() -> None:
    memory = PromptMemory(PromptLimit(TOKENIZER, 1000))
    prompt, rest = "<|im_start|>a\n", "\n<|im_start|>more"
    spelled = [each for char in "<think>" for each in letters(char)]
    assert letters("<think>") != spelled
    ids = memory.ids_of(prompt)
    assert ids == letters(prompt)
    memory.remember(prompt, ids, "<think>", spelled, END)
    longer = memory.ids_of(f"{prompt}<think><|im_end|>{rest}")
    assert longer == [*ids, *spelled, END, *letters(rest)]
    assert TOKENIZER.decode(longer, show_special=True) == f"{prompt}<think><|im_end|>{rest}"


def test_only_a_whole_turn_is_gone_on_from() -> None:
    memory = PromptMemory(PromptLimit(TOKENIZER, 1000))
    memory.remember("a", letters("a"), "b", letters("b"), END)
    assert memory.ids_of("abc") == letters("abc")
    assert memory.ids_of("ab<|im_end|>") == letters("ab<|im_end|>")


def test_tokens_that_say_something_else_are_not_remembered() -> None:
    memory = PromptMemory(PromptLimit(TOKENIZER, 1000))
    memory.remember("a", letters("a"), "b", letters("c"), END)
    assert memory.ids_of("ab<|im_end|>") == letters("ab<|im_end|>")


def test_the_longest_beginning_counts() -> None:
    memory = PromptMemory(PromptLimit(TOKENIZER, 1000))
    memory.remember("", [], "a", letters("a"), END)
    memory.remember("a<|im_end|>", [*letters("a"), END], "b", letters("b"), END)
    ids = memory.ids_of("a<|im_end|>b<|im_end|>c")
    assert ids == letters("a<|im_end|>b<|im_end|>c")


def test_what_was_not_used_for_long_is_forgotten(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(prompt_tokens, "_MAX_TEXTS", 2)
    memory = PromptMemory(PromptLimit(TOKENIZER, 1000))
    for text in "ab":
        memory.remember("", [], text, letters(text), END)
    memory.ids_of("a<|im_end|>")
    memory.remember("", [], "c", letters("c"), END)
    assert sorted(memory._ids) == ["a<|im_end|>", "c<|im_end|>"]
    assert memory._num_characters == sum(map(len, memory._ids))


@given(
    pieces=st.lists(st.sampled_from([*TOKENIZER.control_texts, "<|im_", "<", "|>", "a", "end"])),
    size=st.integers(1, 30),
)
def test_control_tokens_are_marked_across_slices(pieces: list[str], size: int) -> None:
    text = "".join(pieces)
    spelled = re.compile("|".join(map(re.escape, TOKENIZER.control_texts)))
    marked = spelled.sub(lambda found: found[0][0] + MARK + found[0][1:], text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prompt_tokens, "_SLICE", size)
        [message] = PlainContents(TOKENIZER).marked([{"role": "user", "content": text}])
    assert message["content"] == marked
