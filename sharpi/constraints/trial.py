"""Trials: grammars whose compilation may take any time or memory are first tried in a process.

llguidance bounds most of its work, but not what intersecting regular expressions takes, as
schemas ask for by several patterns or a `multipleOf`. A child process with limits finds out; what
passed once is remembered.
"""

import json
import os
import re
import resource
import subprocess
import sys
from collections import OrderedDict
from hashlib import sha256

from sharpi.constraints.fault import worded
from sharpi.errors import GrammarError

CPU_SECONDS = 2
_WALL_SECONDS = 20
_MEMORY_BYTES = 1 << 30
_MAX_REMEMBERED = 256
# Keywords of a schema, or letters that may spell one.
_RISKY = re.compile(r"(?<!_)pattern|multipleOf|allOf|\\u00[2-7]")
_TOO_COMPLEX = f"the grammar is too complex: it takes more than {CPU_SECONDS} s or 1 GiB to compile"


class Trials:
    """What was tried so far, by the hash of its text."""

    def __init__(self) -> None:
        self._passed: OrderedDict[bytes, str] = OrderedDict()

    def check(self, grammar: str) -> None:
        """Raises GrammarError for a grammar that cannot be compiled within the limits."""
        if _RISKY.search(grammar):
            self._outcome("grammar", grammar)

    def lark_of_gbnf(self, text: str) -> str:
        """The same grammar as Lark; raises GrammarError."""
        return self._outcome("gbnf", text)

    def _outcome(self, kind: str, text: str) -> str:
        key = sha256(f"{kind} {text}".encode("utf-8", "surrogatepass")).digest()
        outcome = self._passed.get(key)
        if outcome is None:
            outcome = self._passed[key] = _try(kind, text)
            while len(self._passed) > _MAX_REMEMBERED:
                self._passed.popitem(last=False)
        return outcome


def _try(kind: str, text: str) -> str:
    """What the child process made of it; raises GrammarError for its complaint or its end."""
    command = [sys.executable, "-P", "-m", "sharpi.constraints.trial"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    request = json.dumps({"kind": kind, "text": text}).encode()
    try:
        child = subprocess.run(
            command, input=request, capture_output=True, env=environment, timeout=_WALL_SECONDS
        )
        answer = json.loads(child.stdout) if child.returncode == 0 else {"error": _TOO_COMPLEX}
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise GrammarError(_TOO_COMPLEX) from error
    if "error" in answer:
        raise GrammarError(worded(answer["error"]))
    return str(answer["text"])


def _child() -> None:
    """Reads a request from stdin, works under limits, writes the outcome to stdout."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    request = json.load(sys.stdin)
    work = _lark_of_gbnf if request["kind"] == "gbnf" else _compiled
    print(json.dumps(work(request["text"])))


def _lark_of_gbnf(text: str) -> dict[str, str]:
    from llguidance.gbnf_to_lark import gbnf_to_lark

    try:
        return {"text": gbnf_to_lark(text)}
    except Exception as error:  # the converter raises whatever it stumbles over
        return {"error": f"not a GBNF grammar: {error}"}


def _compiled(grammar: str) -> dict[str, str]:
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(verbose_errors=False)
    fault, messages = LLMatcher.validate_grammar_with_warnings(grammar, limits=limits)
    return {"error": messages[0]} if fault else {"text": ""}


if __name__ == "__main__":
    _child()
