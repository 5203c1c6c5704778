"""Names of models: `ORG/REPO:QUANT@REVISION`, and short ones of those that are well known.

The owners of the repositories may rename files, so `sharpi pull` reads the current list of files.
Parameter counts are those that the models' authors publish; file sizes are computed from them.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from sharpi.errors import UsageError

_SEGMENT = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_NAME = re.compile(
    r"(?:(?:https?://)?(?:hf\.co|huggingface\.co)/)?"
    rf"(?P<repository>{_SEGMENT}/{_SEGMENT})"
    r"(?::(?P<quant>[A-Za-z0-9][^:@\s]*))?"
    r"(?:@(?P<revision>[A-Za-z0-9][A-Za-z0-9._/-]*))?"
)
_LONGEST_REPOSITORY = 96  # the hub's limit


class ModelName(Struct, frozen=True):
    """The name of a model on the hub."""

    repository: str  # ORG/REPO
    quant: str | None = None  # a label, file name or path; None if not given
    revision: str | None = None  # a branch, tag or commit; None for the main one

    def __str__(self) -> str:
        quant = "" if self.quant is None else f":{self.quant}"
        return f"{self.repository}{quant}" + ("" if self.revision is None else f"@{self.revision}")


def read_name(text: str) -> ModelName | None:
    """Parses a model name; returns None if the text is not a valid name."""
    match = _NAME.fullmatch(text)
    if match is None or not _is_allowed(match["repository"]) or ".." in (match["revision"] or ""):
        return None
    return ModelName(match["repository"], match["quant"], match["revision"])


def require_name(text: str) -> ModelName:
    """Parses a model name; raises UsageError if the text is not a valid name."""
    name = read_name(text)
    if name is None:
        raise UsageError(
            f"'{text}' is not a model name; write ORG/REPO:QUANT, or a name of `sharpi models`"
        )
    return name


def _is_allowed(repository: str) -> bool:
    """Returns whether a repository's name follows the hub's rules, and stays in the cache."""
    is_odd = "--" in repository or ".." in repository or repository.endswith((".git", ".gguf"))
    return not is_odd and len(repository) <= _LONGEST_REPOSITORY


# Average bits per weight of whole files.
BITS = {"Q4_K_M": 4.85, "Q5_K_M": 5.7, "Q6_K": 6.6, "Q8_0": 8.5, "MXFP4": 4.5}
_USUAL = ("Q4_K_M", "Q6_K", "Q8_0")


class CatalogueEntry(Struct, frozen=True):
    """A model with a short name, and the sizes from which `sharpi plan` estimates its memory."""

    name: str  # FAMILY:SIZE
    title: str
    repository: str
    parameters: float  # in billions
    active: float  # parameters that one token uses, in billions
    num_layers: int
    hidden_size: int
    vocabulary: int
    kv_width: int  # numbers per token and layer in the KV cache
    num_experts: int = 0
    num_used: int = 0
    quants: tuple[str, ...] = _USUAL

    @property
    def quant(self) -> str:
        """The quant that is meant by the short name without a quant."""
        return self.quants[0]

    def file_bytes(self, quant: str) -> int:
        """Returns the approximate size in bytes of the model's file with a quant."""
        return int(self.parameters * 1e9 * BITS[quant] / 8)

    def model_name(self, quant: str | None = None) -> ModelName:
        """Returns the model's name on the hub, with the default quant if `quant` is None."""
        return ModelName(self.repository, quant or self.quant)


def approximate_bytes(name: ModelName) -> int | None:
    """Returns the approximate size of a model's file; None for models that are not listed here."""
    for entry in CATALOGUE:
        quant = (name.quant or entry.quant).upper()
        if entry.repository == name.repository and quant in BITS:
            return entry.file_bytes(quant)
    return None


def find_entry(text: str) -> tuple[CatalogueEntry, str] | None:
    """Returns the model and quant of a name such as `qwen3:30b` or `qwen3:30b:Q8_0`, else None."""
    word = text.lower()
    for entry in CATALOGUE:
        if word == entry.name:
            return entry, entry.quant
        for quant in entry.quants:
            if word == f"{entry.name}:{quant.lower()}":
                return entry, quant
    return None


def entries_like(word: str) -> Sequence[CatalogueEntry]:
    """Returns the models whose short name, title or repository contains a word, in any case."""
    wanted = word.lower()
    return [
        each
        for each in CATALOGUE
        if any(wanted in text.lower() for text in (each.name, each.title, each.repository))
    ]


def short_names() -> Iterable[str]:
    """Returns the short names of all models in the catalogue."""
    return (entry.name for entry in CATALOGUE)


def short_names_of(names: Iterable[ModelName]) -> list[str]:
    """Returns the short names of those models in `names` that are in the catalogue."""
    known = {str(name).lower() for name in names}
    every = ((each, quant) for each in CATALOGUE for quant in each.quants)
    return [
        each.name if quant == each.quant else f"{each.name}:{quant.lower()}"
        for each, quant in every
        if str(each.model_name(quant)).lower() in known
    ]


CATALOGUE = msgspec.json.decode(
    Path(__file__).with_suffix(".json").read_bytes(), type=tuple[CatalogueEntry, ...]
)
