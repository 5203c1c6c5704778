"""Names of models: `ORG/REPO` or `ORG/REPO:QUANT`, with `@REVISION` unless it is `main`."""

import re

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
