"""Writes `prefixItems` and `const` in the keywords of older drafts of JSON Schema.

Before draft 2020-12, a list in `items` had the meaning of today's `prefixItems`, and
`additionalItems` was the schema of the items after the list. Draft 4 has no `const`. llguidance
interprets a document by the draft that its `$schema` names.
"""

import re
from typing import Any

_OLDER = re.compile(r"draft-0[3467]|2019-09")
_DATA = ("const", "enum", "default", "examples")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")


def is_older(schema: dict[str, Any]) -> bool:
    """Returns whether a document's `$schema` names a draft before 2020-12."""
    return _OLDER.search(str(schema.get("$schema", ""))) is not None


def with_older_tuples(schema: Any) -> Any:
    """Returns a copy with older drafts' keywords in place of `prefixItems` and `const`.

    A `const` beside an `enum` stays.
    """
    if isinstance(schema, list):
        return [with_older_tuples(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _part(key, value) for key, value in schema.items()}
    if isinstance(found.get("prefixItems"), list):
        if "items" in found:
            found["additionalItems"] = found["items"]
        found["items"] = found.pop("prefixItems")
    if "const" in found and "enum" not in found:
        found["enum"] = [found.pop("const")]
    return found


def _part(key: str, value: Any) -> Any:
    if key in _DATA:
        return value
    if key in _MAPS and isinstance(value, dict):  # its keys are names
        return {name: with_older_tuples(each) for name, each in value.items()}
    return with_older_tuples(value)
