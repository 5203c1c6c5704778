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
import threading
from collections import OrderedDict
from hashlib import sha256

from sharpi.constraints.grammar_error import worded
from sharpi.constraints.plain_bytes import PlainBytes
from sharpi.errors import BusyError, GrammarError

CPU_SECONDS = 2
_NICENESS = 10  # the answers of others go first
_WALL_SECONDS = 60  # for its processor seconds on a busy machine
_MEMORY_BYTES = 1 << 30
_STACK_BYTES = 1 << 20  # threads have several times as much
_MAX_UNTRIED = 4096  # characters; too few for a chain of rules that exhausts the stack
_MAX_REMEMBERED = 256
_MAX_WAITING = 6
# Keywords of a JSON schema, or escapes that may spell one.
_RISKY = re.compile(r"(?<!_)pattern|multipleOf|allOf|\\u00[2-7]")
_TOO_COMPLEX = f"the grammar is too complex to be compiled within {CPU_SECONDS} s and 1 GiB"


class Trials:
    """Remembers the outcome of the newest few hundred trials, by the hash of the grammar.

    One trial runs at a time, and few may wait: a client with costly grammars takes no more than a
    processor from the others. Any thread may use it.
    """

    def __init__(self) -> None:
        self._outcomes: OrderedDict[bytes, str] = OrderedDict()
        self._places = threading.BoundedSemaphore(_MAX_WAITING)
        self._lock = threading.Lock()

    def check(self, grammar: str) -> None:
        """Raises GrammarError for a grammar that cannot be compiled within the limits.

        Raises BusyError if too many others are being tried.
        """
        if len(grammar) <= _MAX_UNTRIED and not _RISKY.search(grammar):
            return
        key = sha256(grammar.encode()).digest()
        complaint = self._outcomes.get(key)
        if complaint is None:
            complaint = self._try(key, grammar)
        if complaint:
            raise GrammarError(worded(complaint))

    def _try(self, key: bytes, grammar: str) -> str:
        if not self._places.acquire(blocking=False):
            raise BusyError("too many grammars and schemas are being compiled")
        try:
            with self._lock:
                if key not in self._outcomes:
                    self._outcomes[key] = _tried(grammar)
                while len(self._outcomes) > _MAX_REMEMBERED:
                    self._outcomes.popitem(last=False)
                return self._outcomes.get(key, "")
        finally:
            self._places.release()


def _tried(grammar: str) -> str:
    """Returns the error message of a child process; empty if the grammar is valid.

    Raises BusyError if it did not end in time.
    """
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
    except subprocess.TimeoutExpired:  # it had less than its seconds of processor time
        raise BusyError("the machine is too busy to compile a grammar or schema") from None
    except ValueError:
        return _TOO_COMPLEX


def _child() -> None:
    """Compiles the grammar on stdin under limits and prints the error message."""
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_STACK, (_STACK_BYTES, _STACK_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limits = LLParserLimits(verbose_errors=False)
    vocabulary = LLTokenizer(TokenizerWrapper(PlainBytes()))
    grammar = sys.stdin.buffer.read().decode()
    matcher = LLMatcher(vocabulary, grammar, log_level=0, limits=limits)
    if not matcher.is_error():
        matcher.compute_bitmask()
    print(json.dumps(matcher.get_error()))


if __name__ == "__main__":
    _child()
