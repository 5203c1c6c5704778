"""Gemma 4's BPE: merges by rank, spaces as U+2581, unknown characters as byte tokens."""

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from sharpi.tokenizer.merges import merge_pairs, usable_pairs
from sharpi.tokenizer.sentence_piece import SPACE_MARK


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
