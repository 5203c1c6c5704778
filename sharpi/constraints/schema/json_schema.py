"""Converts a JSON schema to llguidance's grammar format."""

import json
import re
from collections.abc import Mapping
from typing import Any

from llguidance import LLMatcher

from sharpi.constraints.schema.budget import MAX_SCHEMAS, check_length
from sharpi.constraints.schema.rewriting import Rewriting
from sharpi.errors import GrammarError

# At most a space, or up to two line ends and an indent, so that no answer is endless blanks.
WHITESPACE = r" |\n{1,2}[ \t]{0,20}"
# These options override those in the schema itself ("x-guidance").
_OPTIONS: Any = {
    "item_separator": ",",
    "key_separator": ":",
    "whitespace_flexible": True,
    "whitespace_pattern": WHITESPACE,
    "coerce_one_of": False,
    "lenient": False,
}


def grammar_of_schema(
    schema: Mapping[str, Any] | bool, *, splits_one_of: bool = False, most: int = MAX_SCHEMAS
) -> str:
    """Returns the grammar, not compiled yet; raises GrammarError if `schema` is not a schema.

    With `splits_one_of`, the branches of each `oneOf` are made to exclude each other. Raises
    TooManySchemas if rewriting would make more than `most` schemas.
    """
    if schema is False:
        raise GrammarError("the JSON schema is false, which no answer satisfies")
    if schema is not True and not isinstance(schema, Mapping):
        raise GrammarError(f"a JSON schema is an object, not {json.dumps(schema)[:40]}")
    known = {} if schema is True else schema
    text = as_json(rewritten_schema(known, splits_one_of=splits_one_of, most=most))
    try:
        return LLMatcher.grammar_from_json_schema(text, overrides=_OPTIONS)
    except ValueError as error:
        raise GrammarError(f"the JSON schema cannot be used: {error}") from error


def rewritten_schema(
    schema: Mapping[str, Any], *, splits_one_of: bool = False, most: int = MAX_SCHEMAS
) -> Mapping[str, Any]:
    """Returns the schema in keywords that llguidance enforces; raises GrammarError."""
    if not isinstance(schema, Mapping):
        return schema
    try:
        found = Rewriting(dict(schema), most, splits_one_of=splits_one_of).rewritten()
        check_length(found)
    except (TypeError, AttributeError, KeyError, RecursionError, re.error) as error:
        raise GrammarError(f"the JSON schema is malformed: {str(error)[:100]}") from error
    return found if isinstance(found, dict) else schema


def as_json(schema: Mapping[str, Any]) -> str:
    """Returns a schema as JSON text; raises GrammarError for NaN, infinities and deep nesting."""
    try:
        return json.dumps(schema, allow_nan=False)
    except RecursionError as error:
        raise GrammarError("the JSON schema is nested too deeply") from error
    except ValueError as error:
        raise GrammarError(
            f"the JSON schema has a number that JSON does not allow: {error}"
        ) from error
