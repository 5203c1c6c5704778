"""Budget: limits the number and the length of the schemas that one JSON schema is rewritten to.

Nested alternatives multiply: a schema of a few lines can expand to more schemas than fit into
memory.
"""

from typing import Any

from sharpi.errors import GrammarError

MAX_SCHEMAS = 100_000  # made of one document in less than a second
MAX_SCHEMAS_HERE = 5_000  # in this process: other threads wait some ms for the GIL
MAX_CHARACTERS = 256 << 10


class TooManySchemas(GrammarError):
    """Rewriting a schema would make more schemas than the budget allows."""


class Budget:
    """Counts the schemas made while one document is rewritten; `most` is the limit."""

    def __init__(self, most: int = MAX_SCHEMAS) -> None:
        self._left = self._most = most

    def spend(self, num: int = 1) -> None:
        """Counts `num` schemas that are about to be made; raises TooManySchemas."""
        self._left -= num
        if self._left < 0:
            raise TooManySchemas(
                f"the JSON schema is too complex: it stands for more than {self._most} others"
            )


def check_length(schema: Any) -> None:
    """Raises GrammarError if a schema's JSON text is too long; shared objects count repeatedly."""
    lengths: dict[int, int] = {}
    if (found := _length(schema, lengths)) > MAX_CHARACTERS:
        raise GrammarError(
            f"the JSON schema has {found} characters when it is rewritten;"
            f" the limit is {MAX_CHARACTERS}"
        )


def _length(value: Any, lengths: dict[int, int]) -> int:
    """Returns a lower bound of the length of a value's JSON text; `lengths` caches it by `id()`."""
    if isinstance(value, str):
        return len(value) + 2
    if not isinstance(value, dict | list):
        return 1
    if (known := lengths.get(id(value))) is not None:
        return known
    if isinstance(value, dict):
        found = 2 + sum(len(key) + 3 + _length(each, lengths) for key, each in value.items())
    else:
        found = 2 + sum(_length(each, lengths) for each in value)
    lengths[id(value)] = found
    return found
