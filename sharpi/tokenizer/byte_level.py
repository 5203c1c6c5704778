"""Byte-level BPE (GPT-2), on the `tokenizers` library: bytes as letters, merges by rank."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from sharpi.tokenizer.pre_tokenizers import PreTokenizer


class ByteLevelEncoder:
    """Encodes plain text; characters that the vocabulary cannot spell are dropped."""

    def __init__(self, ids: dict[str, int], merges: Sequence[str], rules: PreTokenizer) -> None:
        cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rules.patterns]
        letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        self._tokenizer = Tokenizer(_model(ids, merges, rules.takes_whole_words))
        self._tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, letters])

    def encode(self, text: str) -> list[int]:
        """Returns the token ids of a text without special tokens."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def spelled_bytes(token: str) -> bytes:
    """Returns the bytes that a token's letters stand for; other characters stand for themselves."""
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
    """Returns GPT-2's alphabet: printable bytes as they are, the others from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(0x100 + index): byte for index, byte in enumerate(others)}


def _model(ids: dict[str, int], merges: Sequence[str], takes_whole_words: bool) -> models.BPE:
    """Builds the library's model, without the tokens and merges that it refuses."""
    pairs = _pairs(merges)
    try:
        return models.BPE(ids, pairs, ignore_merges=takes_whole_words)
    except Exception:  # the library has no class of its own for a merge or a text it cannot take
        valid = {text: token_id for text, token_id in ids.items() if _is_valid(text)}
        return models.BPE(valid, _usable(pairs, valid), ignore_merges=takes_whole_words)


def usable_merges(merges: Sequence[str], ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """Returns the merges with both parts and their union in the vocabulary, in order."""
    return _usable(_pairs(merges), ids)


def _pairs(merges: Iterable[str]) -> list[tuple[str, str]]:
    """Returns the left and right part of each merge; of two equal merges the first counts."""
    return [
        (left, right)
        for merge in dict.fromkeys(merges)
        for left, _, right in (merge.partition(" "),)
    ]


def _usable(pairs: Iterable[tuple[str, str]], ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """Returns the pairs with both parts and their union in the vocabulary."""
    return [
        (left, right)
        for left, right in pairs
        if left in ids and right in ids and left + right in ids
    ]


def _is_valid(text: str) -> bool:
    """Returns False for lone surrogates, which stand for bytes that were not UTF-8."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)
