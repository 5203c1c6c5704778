"""Pattern: a regular expression of a JSON schema, matched in time linear in the text's length.

Python's `re` can take exponential time on a client's pattern, and holds the GIL meanwhile.
"""

import json
from functools import cache

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from sharpi.constraints.grammar_error import short_message
from sharpi.constraints.plain_bytes import PlainBytes
from sharpi.errors import GrammarError

_MAX_BYTES = 64  # of the texts that are listed


class Pattern:
    """A compiled pattern; raises GrammarError for one that llguidance does not support."""

    def __init__(self, pattern: str) -> None:
        schema = json.dumps({"type": "string", "pattern": pattern})
        grammar = LLMatcher.grammar_from_json_schema(schema)
        limits = LLParserLimits(verbose_errors=False)
        self._matcher = LLMatcher(_vocabulary(), grammar, log_level=0, limits=limits)
        if self._matcher.is_error():
            raise GrammarError(short_message(self._matcher.get_error()))

    def matches(self, text: str) -> bool:
        """Returns whether the pattern matches some part of the text."""
        matcher = self._matcher.deep_copy()
        ids = list(json.dumps(text, ensure_ascii=False).encode())
        return matcher.try_consume_tokens(ids) == len(ids) and bool(matcher.is_accepting())

    def texts(self, most: int) -> list[str] | None:
        """Returns all strings that the pattern matches, shortest first.

        Returns None if there are more than `most`, or one has more than 64 bytes.
        """
        found: list[str] = []
        left = [(b'"', self._matcher.deep_copy())]
        left[0][1].consume_token(left[0][0][0])
        while left:
            if len(left) + len(found) > most:
                return None
            prefix, matcher = left.pop(0)
            if len(prefix) > _MAX_BYTES:
                return None
            for byte in _next_bytes(matcher):
                after, text = matcher.deep_copy(), prefix + bytes([byte])
                after.consume_token(byte)
                if after.is_accepting():
                    found.append(json.loads(text))
                else:
                    left.append((text, after))
        return found


def _next_bytes(matcher: LLMatcher) -> list[int]:
    mask = np.frombuffer(matcher.compute_bitmask(), np.uint8)
    return np.flatnonzero(np.unpackbits(mask, bitorder="little")).tolist()


@cache
def _vocabulary() -> LLTokenizer:
    return LLTokenizer(TokenizerWrapper(PlainBytes()))
