"""The tokens that end a generation, and the kinds that rules by text change."""

import pytest
from msgspec.structs import replace

from sharpi.tokenizer.tokenizer import Tokenizer
from sharpi.tokenizer.vocabulary import TokenKind, Vocabulary


def tokenizer_of(*texts: str, kind: int = TokenKind.CONTROL, **roles: int) -> Tokenizer:
    return Tokenizer(
        Vocabulary("gpt2", "gpt-2", tokens=[*texts], kinds=[kind] * len(texts), special_ids=roles)
    )


def ends(tokenizer: Tokenizer) -> set[str]:
    return {tokenizer.token_text(token_id) for token_id in tokenizer.end_ids}


def test_ids_that_the_file_names() -> None:
    tokenizer = tokenizer_of("a", "b", "c", "d", "e", eos=0, eot=1, eom=2, padding=3)
    assert ends(tokenizer) == {"a", "b", "c"}


@pytest.mark.parametrize(
    "text",
    ["<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>",
     "<|end_of_text|>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<|return|>", "<EOT>"],
)  # fmt: skip
@pytest.mark.parametrize("kind", [TokenKind.NORMAL, TokenKind.CONTROL])
def test_texts_that_end_whatever_the_file_says(text: str, kind: int) -> None:
    tokenizer = tokenizer_of("a", text, kind=kind)
    assert ends(tokenizer) == {text}
    assert tokenizer.is_hidden(1)


def test_fill_in_the_middle_tokens() -> None:
    tokenizer = tokenizer_of("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|fim_prefix|>")
    assert ends(tokenizer) == {"<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"}


def test_channels_of_gpt_oss_are_shown_and_end_does_not_end() -> None:
    tokenizer = tokenizer_of("<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>")
    assert ends(tokenizer) == {"<|return|>", "<|call|>"}
    assert tokenizer.decode([0, 1, 2]) == "<|channel|><|message|><|end|>"


def test_reasoning_markers_are_shown() -> None:
    tokenizer = tokenizer_of("<think>", "</think>", "<|other|>")
    assert tokenizer.decode([0, 1, 2]) == "<think></think>"


def test_padding_is_no_end(byte_level: Vocabulary) -> None:
    tokenizer = Tokenizer(replace(byte_level, special_ids={"padding": 40}))
    assert 40 not in tokenizer.end_ids
