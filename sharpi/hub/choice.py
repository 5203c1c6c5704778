"""Chooses the model of a repository that a model name refers to, or finds similar names."""

import re
from collections.abc import Iterable, Sequence

from sharpi.errors import HubError, did_you_mean
from sharpi.hub.model_name import ModelName
from sharpi.hub.variants import Variant

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
    found = matching(name.quant, variants)
    if len(found) == 1:
        is_exact = variants_named(name.quant, found)
        return found[0], None if is_exact else f"{name} is {found[0].label} {place}"
    if found:
        listed = _listed(variant.label for variant in found)
        raise HubError(f"{name} may be any of {listed} {place}; name one")
    raise HubError(f"{name} is not {place}; {_what_is_there(name.quant, variants)}")


def matching(quant: str, variants: Sequence[Variant]) -> list[Variant]:
    """Returns the variants whose label, file name or path is `quant`.

    If there are none, returns those with `quant` in their path. Letter case is ignored.
    """
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
        found = matching(quant, variants)
        if len(found) == 1:
            return found[0], _says(name, found[0], variants)
        if found:
            listed = _listed(each.label for each in found)
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
