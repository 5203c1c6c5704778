"""Byte-level BPE (GPT-2): bytes as letters, merges by rank, on the `tokenizers` library."""

from collections.abc import Mapping, Sequence
from functools import cache

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from sharpi.tokenizer.pre_tokenizers import PreTokenizer


class ByteLevelEncoder:
    """Plain text to ids; characters that the vocabulary cannot spell are dropped."""

    def __init__(self, ids: Mapping[str, int], merges: Sequence[str], rules: PreTokenizer) -> None:
        model = models.BPE(
            {text: token_id for text, token_id in ids.items() if _is_valid(text)},
            _usable_merges(ids, merges),
            ignore_merges=rules.takes_whole_words,
        )
        cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rules.patterns]
        letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        self._tokenizer = Tokenizer(model)
        self._tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, letters])

    def encode(self, text: str) -> list[int]:
        """Ids of a text without special tokens."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def spelled_bytes(token: str) -> bytes:
    """The bytes a token's letters stand for; other characters are themselves."""
    letters = byte_of_letter()
    try:
        return bytes([letters[letter] for letter in token])
    except KeyError:
        return b"".join(
            bytes([letters[c]]) if c in letters else c.encode("utf-8", "surrogateescape")
            for c in token
        )


@cache
def byte_of_letter() -> dict[str, int]:
    """GPT-2's alphabet: printable bytes are themselves, the others follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(0x100 + index): byte for index, byte in enumerate(others)}


def _usable_merges(ids: Mapping[str, int], merges: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs by rank: the first rank counts, and both parts and the whole must be tokens."""
    pairs = dict.fromkeys(_pair(merge) for merge in merges)
    return [
        (left, right)
        for left, right in pairs
        if left in ids and right in ids and left + right in ids
    ]


def _pair(merge: str) -> tuple[str, str]:
    """ "left right"; a blank at the very beginning belongs to the left part."""
    cut = merge.find(" ", 1)
    return (merge[:cut], merge[cut + 1 :]) if cut > 0 else ("", "")


def _is_valid(text: str) -> bool:
    """Whether the text is Unicode: bytes that were not UTF-8 came as surrogates."""
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)
