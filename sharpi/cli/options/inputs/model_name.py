"""Names of models as users type them: names on the hub, and the short ones of `sharpi models`."""

from sharpi.hub.catalogue import find_entry
from sharpi.hub.model_name import ModelName, read_name, require_name


def find_name(text: str) -> ModelName | None:
    """Returns the hub's name for a text; None if the text is no name."""
    found = find_entry(text)
    return read_name(text) if found is None else found[0].model_name(found[1])


def called(text: str) -> ModelName:
    """Returns the hub's name for a text; raises UsageError if the text is no name."""
    return find_name(text) or require_name(text)
