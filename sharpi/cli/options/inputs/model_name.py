"""Parses model names that users type: ORG/REPO:QUANT, or a short name of `sharpi models`."""

from sharpi.hub.catalogue import find_entry
from sharpi.hub.model_name import ModelName, read_name, require_name


def find_name(text: str) -> ModelName | None:
    """Returns the repository and quant on the hub that `text` names; None if it names none."""
    found = find_entry(text)
    return read_name(text) if found is None else found[0].model_name(found[1])


def parse_name(text: str) -> ModelName:
    """Returns the repository and quant that `text` names; raises UsageError if it names none."""
    return find_name(text) or require_name(text)
