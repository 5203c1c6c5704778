"""Trials: compiles risky grammars in a child process first, to bound time, memory and stack.

llguidance limits most of its work, with two exceptions: intersections of regular expressions, as
from several patterns or `multipleOf` in a schema, and the recursion along thousands of rules that
refer to each other. The child process is ended at its limits; results are cached.
"""

import re

from sharpi.constraints.child_processes import (
    CPU_SECONDS,
    ChildProcesses,
    ChildResultCache,
    run_child,
    serve_parent,
)
from sharpi.constraints.grammar_error import short_message
from sharpi.constraints.plain_bytes import PlainBytes
from sharpi.errors import GrammarError

_MAX_UNTRIED = 4096  # characters; too few for a chain of rules that exhausts the stack
_MAX_REMEMBERED = 256
# Keywords of a JSON schema, or escapes that may spell one.
_RISKY = re.compile(r"(?<!_)pattern|multipleOf|allOf|\\u00[2-7]")
_TOKEN_IDS = re.compile(r"<\[[0-9, -]*\]>")  # of the model's vocabulary, which a trial lacks
_TOO_COMPLEX = f"the grammar is too complex to be compiled within {CPU_SECONDS} s and 1 GiB"


class Trials:
    """Tries grammars in child processes and caches the newest 256 results by the grammar's hash.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._outcomes = ChildResultCache[str](ChildProcesses(), _MAX_REMEMBERED)

    def check(self, grammar: str) -> None:
        """Raises GrammarError for a grammar that cannot be compiled within the limits.

        Short grammars without risky keywords are not tried. Raises BusyError if too many other
        grammars are being tried.
        """
        if len(grammar) <= _MAX_UNTRIED and not _RISKY.search(grammar):
            return
        message = self._outcomes.get(grammar, _tried)
        if message:
            raise GrammarError(short_message(message))


def _tried(grammar: str) -> str:
    """Compiles a grammar in a child process; returns its error message, empty without an error."""
    message = run_child(__spec__.name, grammar)
    return _TOO_COMPLEX if message is None else str(message)


def _error_of(grammar: str) -> str:
    """Compiles a grammar in this process; returns its error message, empty without an error."""
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

    limits = LLParserLimits(verbose_errors=False)
    vocabulary = LLTokenizer(TokenizerWrapper(PlainBytes()))
    spelled = _TOKEN_IDS.sub("/x/", grammar)
    matcher = LLMatcher(vocabulary, spelled, log_level=0, limits=limits)
    if not matcher.is_error():
        matcher.compute_bitmask()
    return str(matcher.get_error())


if __name__ == "__main__":
    serve_parent(_error_of)
