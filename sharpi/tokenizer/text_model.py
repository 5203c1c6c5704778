"""Builds a BPE model of only the tokens and merges that some words can use.

Every token in a word, and every result of a merge, is a part of the word. So the small model
encodes these words like the whole one: the tokens and merges left out are not parts of them.
"""

from collections.abc import Iterable

from tokenizers import models

from sharpi.gguf.text_index import TextIndex


def text_model(
    words: Iterable[str], ids: TextIndex, merges: TextIndex, takes_whole_words: bool
) -> models.BPE:
    """Returns a model that encodes these words like the whole one; no word may hold a space."""
    whole = set(words)
    letters = ids.found(letter for word in whole for letter in set(word))
    # The library drops characters that are no tokens, and merges those around them.
    spelled = {"".join(letter for letter in word if letter in letters) for word in whole}
    known = letters | ids.found(_parts(spelled, ids.longest)) | ids.found(whole)
    return models.BPE(known, _ranked_pairs(known, merges), ignore_merges=takes_whole_words)


def _parts(words: Iterable[str], longest: int) -> set[str]:
    """Returns all parts of the words of two to `longest` characters."""
    return {
        word[start:end]
        for word in words
        for start in range(len(word))
        for end in range(start + 2, min(start + longest, len(word)) + 1)
    }


def _ranked_pairs(known: dict[str, int], merges: TextIndex) -> list[tuple[str, str]]:
    """Returns the pairs of known tokens that merge into another known one, by rank."""
    pairs = {
        f"{token[:cut]} {token[cut:]}": (token[:cut], token[cut:])
        for token in known
        for cut in range(1, len(token))
        if token[:cut] in known and token[cut:] in known
    }
    ranks = merges.found(pairs)
    return [pairs[merge] for merge in sorted(ranks, key=ranks.__getitem__)]
