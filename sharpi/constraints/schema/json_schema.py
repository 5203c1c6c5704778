"""Converts a JSON schema to llguidance's grammar format."""

import json
import re
from collections.abc import Mapping
from typing import Any

from llguidance import LLMatcher
from msgspec import Struct

from sharpi.constraints.schema.budget import MAX_SCHEMAS, Budget, check_length
from sharpi.constraints.schema.inlining import Inlining
from sharpi.constraints.schema.older_drafts import is_older, with_older_tuples
from sharpi.constraints.schema.rewriting import Rewriting
from sharpi.errors import GrammarError

# A space, or one or two line ends and an indent: bounded, so that no answer is only white space.
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


class RewritingOptions(Struct, frozen=True):
    """Rewritings that cost too much to be applied to every schema."""

    splits_one_of: bool = False  # makes the branches of each `oneOf` exclude each other
    inlines: bool = False  # copies schemas to where other keywords are beside their references

    def after(self, message: str) -> "RewritingOptions | None":
        """Returns options with rewritings that may avoid an error message of llguidance.

        Returns None if the message calls for no further rewriting.
        """
        found = RewritingOptions(
            self.splits_one_of or "oneOf" in message,
            self.inlines or "circular references" in message,
        )
        return None if found == self else found


PLAIN = RewritingOptions()


def grammar_of_schema(
    schema: Mapping[str, Any] | bool, options: RewritingOptions = PLAIN, most: int = MAX_SCHEMAS
) -> str:
    """Returns llguidance's grammar of a JSON schema, as text that is not compiled yet.

    Raises GrammarError if `schema` is invalid or not supported, and TooManySchemas if it would be
    rewritten to more than `most` schemas.
    """
    if schema is False:
        raise GrammarError("the JSON schema is false, which no answer satisfies")
    if schema is not True and not isinstance(schema, Mapping):
        raise GrammarError(f"a JSON schema is an object, not {json.dumps(schema)[:40]}")
    known = {} if schema is True else schema
    text = as_json(rewritten_schema(known, options, most))
    try:
        return LLMatcher.grammar_from_json_schema(text, overrides=_OPTIONS)
    except ValueError as error:
        raise GrammarError(f"the JSON schema cannot be used: {error}") from error


def rewritten_schema(
    schema: Mapping[str, Any], options: RewritingOptions = PLAIN, most: int = MAX_SCHEMAS
) -> Mapping[str, Any]:
    """Rewrites a schema to keywords that llguidance enforces.

    Raises GrammarError if the schema is malformed or cannot be rewritten.
    """
    if not isinstance(schema, Mapping):
        return schema
    try:
        budget = Budget(most)
        found = Rewriting(dict(schema), budget, splits_one_of=options.splits_one_of).rewritten()
        if options.inlines and isinstance(found, dict):
            found = Inlining(found, budget).inlined()
        if is_older(dict(schema)):
            found = with_older_tuples(found)
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
