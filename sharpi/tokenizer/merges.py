"""Merges of byte-pair encoding, by rank: two adjacent tokens that become one."""

from collections.abc import Iterable, Mapping


def merge_pairs(merges: Iterable[str]) -> list[tuple[str, str]]:
    """Returns the left and right part of each merge; of two equal merges the first counts."""
    return [
        (left, right)
        for merge in dict.fromkeys(merges)
        for left, _, right in (merge.partition(" "),)
    ]


def usable_pairs(pairs: Iterable[tuple[str, str]], ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """Returns the pairs with both parts and their union in the vocabulary, in order."""
    return [
        (left, right)
        for left, right in pairs
        if left in ids and right in ids and left + right in ids
    ]
