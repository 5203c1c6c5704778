"""Pattern: a regular expression of a JSON schema, matched in time bounded by the text's length.

Python's `re` may take for ever on a client's pattern, and no other thread can run meanwhile.
"""

import json
from functools import cache

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from sharpi.constraints.grammar_error import worded
from sharpi.constraints.plain_bytes import PlainBytes
from sharpi.errors import GrammarError


class Pattern:
    """A compiled pattern; raises GrammarError for one that llguidance does not support."""

    def __init__(self, pattern: str) -> None:
        schema = json.dumps({"type": "string", "pattern": pattern})
        grammar = LLMatcher.grammar_from_json_schema(schema)
        limits = LLParserLimits(verbose_errors=False)
        self._matcher = LLMatcher(_vocabulary(), grammar, log_level=0, limits=limits)
        if self._matcher.is_error():
            raise GrammarError(worded(self._matcher.get_error()))

    def matches(self, text: str) -> bool:
        """Returns whether the pattern matches some part of the text."""
        matcher = self._matcher.deep_copy()
        ids = list(json.dumps(text, ensure_ascii=False).encode())
        return matcher.try_consume_tokens(ids) == len(ids) and bool(matcher.is_accepting())


@cache
def _vocabulary() -> LLTokenizer:
    return LLTokenizer(TokenizerWrapper(PlainBytes()))
