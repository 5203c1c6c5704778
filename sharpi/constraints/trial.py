"""Trials compiles risky grammars in a child process first, to bound time, memory and stack.

llguidance bounds most of its work, but neither the intersection of regular expressions, which
several patterns or a `multipleOf` in a schema cause, nor the recursion along thousands of rules
that refer to each other. A child process with limits finds out; passed grammars are remembered.
"""

import json
import os
import re
import resource
import subprocess
import sys
from collections import OrderedDict
from hashlib import sha256
from typing import ClassVar

from sharpi.constraints.grammar_error import worded
from sharpi.errors import GrammarError

CPU_SECONDS = 2
_WALL_SECONDS = 20
_MEMORY_BYTES = 1 << 30
_STACK_BYTES = 1 << 20  # threads have several times as much
_MAX_UNTRIED = 4096  # characters; too few for a chain of rules that exhausts the stack
_MAX_REMEMBERED = 256
# Keywords of a JSON schema, or escapes that may spell one.
_RISKY = re.compile(r"(?<!_)pattern|multipleOf|allOf|\\u00[2-7]")
_TOO_COMPLEX = f"the grammar is too complex to be compiled within {CPU_SECONDS} s and 1 GiB"


class Trials:
    """Remembers the newest few hundred grammars that passed, by their hash."""

    def __init__(self) -> None:
        self._passed: OrderedDict[bytes, None] = OrderedDict()

    def check(self, grammar: str) -> None:
        """Raises GrammarError for a grammar that cannot be compiled within the limits."""
        key = sha256(grammar.encode()).digest()
        is_harmless = len(grammar) <= _MAX_UNTRIED and not _RISKY.search(grammar)
        if is_harmless or key in self._passed:
            return
        complaint = _tried(grammar)
        if complaint:
            raise GrammarError(worded(complaint))
        self._passed[key] = None
        while len(self._passed) > _MAX_REMEMBERED:
            self._passed.popitem(last=False)


def _tried(grammar: str) -> str:
    """Returns the error message of a child process; empty if the grammar is valid."""
    command = [sys.executable, "-P", "-m", "sharpi.constraints.trial"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        child = subprocess.run(
            command,
            input=grammar.encode(),
            capture_output=True,
            env=environment,
            timeout=_WALL_SECONDS,
        )
        return str(json.loads(child.stdout)) if child.returncode == 0 else _TOO_COMPLEX
    except (subprocess.TimeoutExpired, ValueError):
        return _TOO_COMPLEX


class _Bytes:
    """The smallest possible vocabulary, as llguidance's `TokenizerWrapper` reads it."""

    eos_token_id = 255
    bos_token_id = None
    tokens: ClassVar = [bytes([byte]) for byte in range(255)] + [b"<end>"]
    special_token_ids: ClassVar = [255]

    def __call__(self, data: bytes) -> list[int]:
        """Returns the ids of a text."""
        return list(data)


def _child() -> None:
    """Compiles the grammar on stdin under limits and prints the error message."""
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_STACK, (_STACK_BYTES, _STACK_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limits = LLParserLimits(verbose_errors=False)
    vocabulary = LLTokenizer(TokenizerWrapper(_Bytes()))
    grammar = sys.stdin.buffer.read().decode()
    matcher = LLMatcher(vocabulary, grammar, log_level=0, limits=limits)
    if not matcher.is_error():
        matcher.compute_bitmask()
    print(json.dumps(matcher.get_error()))


if __name__ == "__main__":
    _child()
