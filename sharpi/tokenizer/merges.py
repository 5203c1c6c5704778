"""Merges of byte-pair encoding, by rank: two adjacent tokens that become one."""

from collections.abc import Iterable, Mapping


def merge_pairs(merges: Iterable[str]) -> list[tuple[str, str]]:
    """Returns the left and right parts of each merge; of equal merges, the first one counts."""
    return [
        (left, right)
        for merge in dict.fromkeys(merges)
        for left, _, right in (merge.partition(" "),)
    ]


def usable_pairs(pairs: Iterable[tuple[str, str]], ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """Returns, in order, the pairs whose parts and union are all in the vocabulary."""
    return [
        (left, right)
        for left, right in pairs
        if left in ids and right in ids and left + right in ids
    ]
