"""Byte-pair encoding with the `tokenizers` library: byte-level as in GPT-2, and that of Gemma 4.

The library needs half a second to read a vocabulary of 150,000 tokens with its merges, which would
be most of the time to the first token. So the first, short texts are encoded with a small model of
the tokens and merges that they can use; see `text_model`.
"""

from collections.abc import Iterable, Mapping
from functools import cache, cached_property

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from sharpi.gguf.string_array import TextIndex
from sharpi.tokenizer.pre_tokenizers import PreTokenizer
from sharpi.tokenizer.sentence_piece import SPACE_MARK


def merge_pairs(merges: Iterable[str]) -> list[tuple[str, str]]:
    """Splits each merge "left right" into its two tokens; repeated merges are dropped."""
    return [
        (left, right)
        for merge in dict.fromkeys(merges)
        for left, _, right in (merge.partition(" "),)
    ]


def usable_pairs(pairs: Iterable[tuple[str, str]], ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """Returns, in order, the pairs of which both tokens and the merged token are in `ids`."""
    return [
        (left, right)
        for left, right in pairs
        if left in ids and right in ids and left + right in ids
    ]


def text_model(
    words: Iterable[str], ids: TextIndex, merges: TextIndex, takes_whole_words: bool
) -> models.BPE:
    """Returns a model that encodes `words` as the full model does.

    No word may contain a space. `takes_whole_words`: a word that is a token is not merged from
    parts.
    """
    whole = set(words)
    letters = ids.find_all(letter for word in whole for letter in set(word))
    # The library drops characters that are no tokens, and merges those around them.
    spelled = {"".join(letter for letter in word if letter in letters) for word in whole}
    known = letters | ids.find_all(_parts(spelled, ids.longest)) | ids.find_all(whole)
    return models.BPE(known, _ranked_pairs(known, merges), ignore_merges=takes_whole_words)


def _parts(words: Iterable[str], longest: int) -> set[str]:
    """Returns all substrings of the words with two to `longest` characters."""
    return {
        word[start:end]
        for word in words
        for start in range(len(word))
        for end in range(start + 2, min(start + longest, len(word)) + 1)
    }


def _ranked_pairs(known: dict[str, int], merges: TextIndex) -> list[tuple[str, str]]:
    """Returns the pairs of tokens in `known` that merge to a token in `known`, by rank."""
    pairs = {
        f"{token[:cut]} {token[cut:]}": (token[:cut], token[cut:])
        for token in known
        for cut in range(1, len(token))
        if token[:cut] in known and token[cut:] in known
    }
    ranks = merges.find_all(pairs)
    return [pairs[merge] for merge in sorted(ranks, key=ranks.__getitem__)]


# The first texts, up to this many characters in total, are encoded with small models.
MAX_CHARACTERS_APART = 4096


class ByteLevelEncoder:
    """Encodes plain text; bytes that are no token of the vocabulary are dropped.

    `ids`: the id of each token. `merges`: the rank of each merge, written as "left right".
    """

    def __init__(self, ids: TextIndex, merges: TextIndex, rules: PreTokenizer) -> None:
        cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rules.patterns]
        letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        self._words = pre_tokenizers.Sequence([*cuts, letters])
        self._ids, self._merges = ids, merges
        self._takes_whole_words = rules.takes_whole_words
        self._num_characters = 0

    def encode(self, text: str) -> list[int]:
        """Returns the token ids of a text without special tokens."""
        self._num_characters += len(text)
        is_long = self._num_characters > MAX_CHARACTERS_APART
        tokenizer = self._whole if is_long else self._tokenizer_of(text)
        # encode_batch lets other threads run, while encode of a single text does not.
        [encoding] = tokenizer.encode_batch([text], add_special_tokens=False)
        return list(encoding.ids)

    def _tokenizer_of(self, text: str) -> Tokenizer:
        words = [word for word, _ in self._words.pre_tokenize_str(text)]
        return self._tokenizer(text_model(words, self._ids, self._merges, self._takes_whole_words))

    @cached_property
    def _whole(self) -> Tokenizer:
        ids, merges = self._ids.todict(), self._merges.texts.tolist()
        return self._tokenizer(_model(ids, merges, self._takes_whole_words))

    def _tokenizer(self, model: models.BPE) -> Tokenizer:
        tokenizer = Tokenizer(model)
        tokenizer.pre_tokenizer = self._words
        return tokenizer


def token_to_bytes(token: str) -> bytes:
    """Returns the bytes of a token in GPT-2's alphabet; other characters become UTF-8."""
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
    """Returns the byte of each character in GPT-2's alphabet (`bytes_to_unicode`)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(0x100 + index): byte for index, byte in enumerate(others)}


def _model(ids: dict[str, int], merges: list[str], takes_whole_words: bool) -> models.BPE:
    """Builds a BPE model of the library, without the tokens and merges that it rejects."""
    # A merged pair longer than every token makes the library panic.
    pairs = [pair for pair in merge_pairs(merges) if pair[0] + pair[1] in ids]
    try:
        return models.BPE(ids, pairs, ignore_merges=takes_whole_words)
    except Exception:  # the library raises plain Exception for merges and texts that it refuses
        valid = {text: token_id for text, token_id in ids.items() if _is_valid(text)}
        return models.BPE(valid, usable_pairs(pairs, valid), ignore_merges=takes_whole_words)


def _is_valid(text: str) -> bool:
    """Returns False if a text has lone surrogates, which stand for bytes that were not UTF-8."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


class MarkedMergeEncoder:
    """Encodes plain text as Gemma 4 does; before merging, splits it at newlines only."""

    def __init__(self, ids: dict[str, int], merges: Iterable[str]) -> None:
        pairs = usable_pairs(merge_pairs(merges), ids)
        self._tokenizer = Tokenizer(models.BPE(ids, pairs, byte_fallback=True))
        self._tokenizer.normalizer = normalizers.Replace(" ", SPACE_MARK)
        self._tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[^\n]+|\n+"), "isolated")

    def encode(self, text: str) -> list[int]:
        """Returns the token ids of a text without special tokens."""
        # encode_batch lets other threads run, while encode of a single text does not.
        [encoding] = self._tokenizer.encode_batch([text], add_special_tokens=False)
        return list(encoding.ids)
