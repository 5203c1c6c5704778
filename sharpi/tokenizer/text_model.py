"""Builds a BPE model of only the tokens and merges that certain words can use.

Every token in a word, and every result of a merge, is a substring of the word. So the small model
encodes the words as the full model does: it only lacks tokens that are no substrings of them.
"""

from collections.abc import Iterable

from tokenizers import models

from sharpi.gguf.text_index import TextIndex


def text_model(
    words: Iterable[str], ids: TextIndex, merges: TextIndex, takes_whole_words: bool
) -> models.BPE:
    """Returns a model that encodes `words` as the full model does.

    No word may contain a space. `takes_whole_words`: a word that is a token is not merged from
    parts.
    """
    whole = set(words)
    letters = ids.found(letter for word in whole for letter in set(word))
    # The library drops characters that are no tokens, and merges those around them.
    spelled = {"".join(letter for letter in word if letter in letters) for word in whole}
    known = letters | ids.found(_parts(spelled, ids.longest)) | ids.found(whole)
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
    ranks = merges.found(pairs)
    return [pairs[merge] for merge in sorted(ranks, key=ranks.__getitem__)]
