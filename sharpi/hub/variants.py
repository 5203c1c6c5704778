"""Finds the models among a repository's files, usually one for each quant.

A split model counts as one. Image projectors and importance matrices are left out.
"""

import re
from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

_SUFFIX = ".gguf"
_PART = re.compile(r"(?P<stem>.*?)-?(?P<number>\d{5})-of-(?P<count>\d{5})", re.DOTALL)
_QUANT = re.compile(
    r"(?<![A-Za-z0-9])(?:UD-)?(?:"
    r"(?:IQ|TQ|Q)\d(?:_(?:\d|K|XXS|XS|S|M|L|XL|XXL|NL|P|H))+"
    r"|MXFP4(?:_MOE)?|NVFP4|BF16|FP?16|FP?32)(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_PROJECTOR = re.compile(r"(?:^|[-._])mmproj(?:[-._]|$)", re.IGNORECASE)
_IMPORTANCE = re.compile(r"(?:^|[-._])imatrix(?:[-._]|$)", re.IGNORECASE)


class Variant(Struct, frozen=True):
    """One model among the files of a repository, usually one of several quants."""

    label: str  # the quant, or otherwise the file's name or path
    paths: tuple[str, ...]  # the files in order
    num_parts: int = 1

    @property
    def missing_parts(self) -> list[int]:
        """The numbers, from 1, of a split model's parts that are not among `paths`."""
        there = {_part_number(path) for path in self.paths}
        return [number for number in range(1, self.num_parts + 1) if number not in there]

    @property
    def stem(self) -> str:
        """The path of the first file without the part number and `.gguf`."""
        return _stem(self.paths[0])


def find_variants(paths: Iterable[str]) -> list[Variant]:
    """Returns the models among `paths`, sorted by path.

    A model's label is its quant if no other model has the same one.
    """
    sets: dict[tuple[str, int], list[str]] = {}
    for path in sorted(filter(_is_model, paths)):
        sets.setdefault((_stem(path), _part_count(path)), []).append(path)
    stems = [stem for stem, _ in sets]
    labels = _distinct(stems)
    return [
        Variant(label, tuple(files), count)
        for label, ((_, count), files) in zip(labels, sets.items(), strict=True)
    ]


def _distinct(stems: list[str]) -> list[str]:
    """Returns a label for each stem: its quant, file name or path, the first that is unique."""
    rows = [(_quant_of(stem), stem.rsplit("/", 1)[-1], stem) for stem in stems]
    counts = [Counter(name.lower() for name in column) for column in zip(*rows, strict=True)]
    return [
        next(
            (name for name, count in zip(row, counts, strict=True) if count[name.lower()] == 1),
            row[-1],
        )
        for row in rows
    ]


def _is_model(path: str) -> bool:
    name = path.rsplit("/", 1)[-1]
    if not name.lower().endswith(_SUFFIX) or _PROJECTOR.search(name[: -len(_SUFFIX)]):
        return False
    return not _IMPORTANCE.search(name[: -len(_SUFFIX)]) or _QUANT.search(name) is not None


def _stem(path: str) -> str:
    whole = path[: -len(_SUFFIX)]
    part = _PART.fullmatch(whole)
    return (part["stem"] or whole) if part else whole


def _part_number(path: str) -> int:
    part = _PART.fullmatch(path[: -len(_SUFFIX)])
    return int(part["number"]) if part else 1


def _part_count(path: str) -> int:
    part = _PART.fullmatch(path[: -len(_SUFFIX)])
    return int(part["count"]) if part else 1


def _quant_of(stem: str) -> str:
    """Returns the last quant in a file's name or its folders' names, or else the file's name."""
    for name in reversed(stem.split("/")):
        found = _QUANT.findall(name)
        if found:
            return str(found[-1])
    return stem.rsplit("/", 1)[-1]
