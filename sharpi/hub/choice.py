"""Finds the models among a repository's files, and chooses the one that a name refers to."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from sharpi.errors import HubError, did_you_mean
from sharpi.hub.catalogue import ModelName

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
        there = {_split(path)[1] for path in self.paths}
        return [number for number in range(1, self.num_parts + 1) if number not in there]

    @property
    def stem(self) -> str:
        """The path of the first file without the part number and `.gguf`."""
        return _split(self.paths[0])[0]


def find_variants(paths: Iterable[str]) -> list[Variant]:
    """Returns the models among `paths`, sorted; a label is the quant if that is unique."""
    sets: dict[tuple[str, int], list[str]] = {}
    for path in sorted(filter(_is_model, paths)):
        stem, _, count = _split(path)
        sets.setdefault((stem, count), []).append(path)
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


def _split(path: str) -> tuple[str, int, int]:
    """Returns a path without the part number and `.gguf`, the part's number and their count."""
    whole = path[: -len(_SUFFIX)]
    part = _PART.fullmatch(whole)
    return (
        (part["stem"] or whole, int(part["number"]), int(part["count"])) if part else (whole, 1, 1)
    )


def _quant_of(stem: str) -> str:
    """Returns the last quant in a file's name or its folders' names, or else the file's name."""
    for name in reversed(stem.split("/")):
        quants = _QUANT.findall(name)
        if quants:
            return str(quants[-1])
    return stem.rsplit("/", 1)[-1]


# llama.cpp tries Q4_K_M, then Q8_0, then uses the first file. The quants between these two are of
# about the size of Q4_K_M, for repositories without it.
_USUAL = ("Q4_K_M", "UD-Q4_K_XL", "Q4_K_S", "MXFP4", "MXFP4_MOE", "Q4_0", "Q8_0")
_MAX_LISTED = 12


def choose(name: ModelName, variants: Sequence[Variant], place: str) -> tuple[Variant, str | None]:
    """Returns the model that `name` refers to, and a note for the user if the choice is uncertain.

    `place`: the end of messages, such as "in the cache". Raises HubError, which lists the models,
    if `name` fits none or several.
    """
    if not variants:
        raise HubError(f"{name.repository} has no GGUF file {place}")
    if name.quant is None:
        return _usual(name, variants)
    fitting = matching(name.quant, variants)
    if len(fitting) == 1:
        is_exact = variants_named(name.quant, fitting)
        return fitting[0], None if is_exact else f"{name} is {fitting[0].label} {place}"
    if fitting:
        listed = _listed(variant.label for variant in fitting)
        raise HubError(f"{name} may be any of {listed} {place}; name one")
    raise HubError(f"{name} is not {place}; {_what_is_there(name.quant, variants)}")


def matching(quant: str, variants: Sequence[Variant]) -> list[Variant]:
    """Returns the variants named `quant`, or else those with it in their path, in any case."""
    bounded = re.compile(rf"(?<![a-z0-9_]){re.escape(_bare(quant))}(?![a-z0-9_])")
    parts = [each for each in variants if bounded.search(each.stem.lower())]
    return variants_named(quant, variants) or parts


def variants_named(quant: str, variants: Iterable[Variant]) -> list[Variant]:
    """Returns the variants whose label, file name or path is `quant`; letter case is ignored."""
    return [each for each in variants if _bare(quant) in _names(each)]


def _bare(quant: str) -> str:
    return quant.lower().removesuffix(".gguf")


def _names(variant: Variant) -> tuple[str, str, str]:
    stem = variant.stem.lower()
    return variant.label.lower(), stem, stem.rsplit("/", 1)[-1]


def _usual(name: ModelName, variants: Sequence[Variant]) -> tuple[Variant, str | None]:
    if len(variants) == 1:
        return variants[0], None
    for quant in _USUAL:
        fitting = matching(quant, variants)
        if len(fitting) == 1:
            return fitting[0], _says(name, fitting[0], variants)
        if fitting:
            listed = _listed(each.label for each in fitting)
            raise HubError(f"{name.repository} holds several models: {listed}; name one after ':'")
    return variants[0], _says(name, variants[0], variants)


def _says(name: ModelName, chosen: Variant, variants: Sequence[Variant]) -> str:
    others = _listed(each.label for each in variants if each is not chosen)
    return f"{name.repository}:{chosen.label}, as no quant was named; there are also {others}"


def _what_is_there(quant: str, variants: Sequence[Variant]) -> str:
    labels = [variant.label for variant in variants]
    meant = did_you_mean(quant, labels, 3).removeprefix("; ")
    return f"{meant} there are {_listed(labels)}" if len(labels) > 1 else f"there is {labels[0]}"


def _listed(labels: Iterable[str]) -> str:
    names = list(labels)
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more
