"""A tiny byte-level BPE vocabulary, so that every reference is a complete file.

256 byte tokens, merges of frequent English pairs, four special tokens in front.
"""

import itertools
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

VOCAB_SIZE = 288
SPECIAL_TOKENS = ("<|begin|>", "<|end|>", "<|im_start|>", "<|im_end|>")
NUM_SPECIAL_TOKENS = len(SPECIAL_TOKENS)


def save_tokenizer(folder: Path) -> None:
    """Writes tokenizer.json and its configuration into a Hugging Face model folder."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = _merges(VOCAB_SIZE - NUM_SPECIAL_TOKENS - len(alphabet))
    tokens = [*SPECIAL_TOKENS, *alphabet, *("".join(pair) for pair in merges)]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=SPECIAL_TOKENS[0], eos_token=SPECIAL_TOKENS[1]
    ).save_pretrained(folder)


def _merges(count: int) -> list[tuple[str, str]]:
    pairs = itertools.product("Ġethaoinsr", "ethaoinsr")
    return list(itertools.islice(pairs, count))
