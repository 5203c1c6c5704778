"""Prepares the stories for the demo model: cleans and tokenizes them, and packs them in windows."""

import random
from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn

END, END_ID, VOCABULARY_SIZE, MAX_LENGTH = "<|endoftext|>", 0, 2048, 512
HOLD_OUT_EVERY = 50
NOT_SCORED = -100

# Some stories were decoded once with the wrong code page; all quotes become plain ones,
# because a vocabulary of 2,048 has no room for three kinds.
PLAIN = {
    "â€œ": '"', "â€™": "'", "â€˜": "'", "â€Š": " ", "â€": '"',
    "“": '"', "”": '"', "‘": "'", "’": "'", "–": "-", "—": "-", "…": "...",
}  # fmt: skip


def read_stories(path: Path) -> tuple[list[str], list[str]]:
    """Reads and cleans stories; returns those for training, and every 50th as held-out stories."""
    text = path.read_text(encoding="utf-8")
    for damaged, plain in PLAIN.items():
        text = text.replace(damaged, plain)
    lines = (" ".join(line.split()) for line in text.split("\n"))
    parts = "\n".join(line for line in lines if line).split(END)
    stories = [story.strip() for story in parts if story.strip()]
    training = [story for i, story in enumerate(stories) if i % HOLD_OUT_EVERY]
    return training, stories[::HOLD_OUT_EVERY]


def train_tokenizer(stories: list[str]) -> Tokenizer:
    """Trains a byte-level BPE tokenizer with GPT-2's pre-tokenizer, in which END is token 0."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(stories, trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, stories: list[str], dropout: float = 0.0) -> list[list[int]]:
    """Encodes each story as [END, tokens...]; `dropout`: the probability of skipping a merge."""
    tokenizer.model.dropout = dropout or None
    encoded = tokenizer.encode_batch(stories)
    tokenizer.model.dropout = None
    return [[END_ID, *one.ids] for one in encoded]


def windows(stories: list[list[int]], length: int) -> Iterator[list[int]]:
    """Shuffles stories and packs them into windows of `length` tokens.

    Each window begins at the start of a story; the end of its last story may be cut off.
    """
    random.shuffle(stories)
    window: list[int] = []
    for story in stories:
        window += story
        if len(window) >= length:
            yield window[:length]
            window = []


def padded(stories: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Returns padded tokens and labels, (stories, time), of stories that end with END.

    Stories are cut at MAX_LENGTH. Labels of padding are NOT_SCORED.
    """
    closed = [torch.tensor([*story, END_ID][:MAX_LENGTH]) for story in stories]
    tokens = nn.utils.rnn.pad_sequence(closed, batch_first=True, padding_value=END_ID)
    labels = nn.utils.rnn.pad_sequence(closed, batch_first=True, padding_value=NOT_SCORED)
    return tokens, labels
