"""Merges of byte-pair encoding, ordered by rank; a merge joins two adjacent tokens to one."""

from collections.abc import Iterable, Mapping


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
