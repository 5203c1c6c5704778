"""References: resolves `$ref` within a JSON schema document."""

from collections.abc import Collection, Iterator
from typing import Any, TypeAlias
from urllib.parse import unquote

from sharpi.errors import GrammarError

Schema: TypeAlias = dict[str, Any] | bool
TYPES = ("null", "boolean", "object", "array", "number", "string")  # integers are numbers
_MAX_STEPS = 32


def objects_in(root: Any, but: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """Yields all objects within a JSON value, except in the values of the keys `but`."""
    left = [root]
    while left:
        each = left.pop()
        if isinstance(each, list):
            left += each
        elif isinstance(each, dict):
            yield each
            left += (value for key, value in each.items() if key not in but)


def types_of(schema: dict[str, Any]) -> list[str]:
    """Returns the types in a schema's `type` as a list; all of TYPES without `type`."""
    types = schema.get("type", TYPES)
    return [types] if isinstance(types, str) else list(types)


def named_in_references(schema: Any) -> set[str]:
    """Returns the path segments of all references in a document."""
    references = (each.get("$ref") for each in objects_in(schema))
    return {key for each in references if isinstance(each, str) for key in each.split("/")[1:]}


class References:
    """Resolves references within one schema document."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._found: dict[str, Schema] = {}  # by reference

    def resolved(self, schema: Schema) -> Schema:
        """Returns the target of a schema's `$ref`, merged by `allOf` with the keywords beside it.

        Returns a schema without `$ref` unchanged.
        """
        for _ in range(_MAX_STEPS):
            if not isinstance(schema, dict) or "$ref" not in schema:
                return schema
            target = self.target(schema["$ref"])
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            schema = {"allOf": [target, beside]} if beside else target
        raise GrammarError("the JSON schema has a reference that leads to itself")

    def target(self, reference: Any) -> Schema:
        """Returns the schema that a reference names; raises GrammarError if it does not exist."""
        if not isinstance(reference, str):
            raise GrammarError(f"the JSON schema has a $ref that is no text: {reference!r:.80}")
        if reference not in self._found:
            self._found[reference] = self._look_up(reference)
        return self._found[reference]

    def _look_up(self, reference: str) -> Schema:
        found: Any = self._root
        if not reference.startswith("#"):
            raise GrammarError(f"the JSON schema refers to another document: {reference!r:.80}")
        for part in reference[1:].split("/")[1:]:
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(name)] if isinstance(found, list) else found[name]
            except (KeyError, IndexError, TypeError, ValueError):
                raise GrammarError(f"the JSON schema has no {reference!r:.80}") from None
        if not isinstance(found, dict | bool):
            raise GrammarError(f"the JSON schema has no schema at {reference!r:.80}")
        return found
