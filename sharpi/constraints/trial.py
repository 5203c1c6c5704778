"""Trials: compiles risky grammars in a child process first, to bound time, memory and stack.

llguidance limits most of its work, with two exceptions: intersections of regular expressions, as
from several patterns or `multipleOf` in a schema, and the recursion along thousands of rules that
refer to each other. The child process is ended at its limits. It imports this module: NumPy, for
example, would use up much of its memory.
"""

import json
import os
import re
import resource
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

from sharpi.errors import BusyError, GrammarError

CPU_SECONDS = 2
MEMORY_BYTES = 1 << 30
_NICENESS = 10  # lower priority than the engine's threads
# The length of one wait, and the limits on waits: in a row without CPU time of the child, and in
# all. Waits are counted because the clock goes on while the parent itself is stopped.
_WAIT_SECONDS = 1.0
_MAX_IDLE_WAITS, _MAX_WAITS = 60, 600
_STACK_BYTES = 1 << 20  # threads have several times as much
_MAX_WAITING = 6
_MAX_UNTRIED = 4096  # characters; too few for a chain of rules that exhausts the stack
_MAX_REMEMBERED = 256
# Keywords of a JSON schema, or escapes that may spell one.
_RISKY = re.compile(r"(?<!_)pattern|multipleOf|allOf|\\u00[2-7]")
_TOKEN_IDS = re.compile(r"<\[[0-9, -]*\]>")  # of the model's vocabulary, which a trial lacks
_TOO_COMPLEX = f"the grammar is too complex to be compiled within {CPU_SECONDS} s and 1 GiB"
_MAX_MESSAGE = 300
# Appended for developers: the parser's state, the whole grammar, a stack.
_APPENDIX = re.compile(r"<(?:state|grammar|backtrace|non-verbose)[/>].*", re.DOTALL)
_NO_TEXT = ("NoExtension", "NoExtensionBias")


class Trials:
    """Tries grammars in child processes and caches the newest 256 results by the grammar's hash.

    One child process runs at a time, and at most six threads run or await one: a client with costly
    grammars occupies at most one CPU core. Thread-safe.
    """

    def __init__(self) -> None:
        self._waiting = threading.BoundedSemaphore(_MAX_WAITING)
        self._lock = threading.Lock()
        self._messages: OrderedDict[bytes, str] = OrderedDict()

    def check(self, grammar: str) -> None:
        """Raises GrammarError for a grammar that cannot be compiled within the limits.

        Short grammars without risky keywords are not tried. Raises BusyError if too many other
        grammars are being tried.
        """
        if len(grammar) <= _MAX_UNTRIED and not _RISKY.search(grammar):
            return
        key = sha256(grammar.encode()).digest()
        message = self._messages.get(key)
        if message is None:
            message = self._tried(key, grammar)
        if message:
            raise GrammarError(short_message(message))

    def _tried(self, key: bytes, grammar: str) -> str:
        """Returns the error message of a trial, empty without an error."""
        if not self._waiting.acquire(blocking=False):
            raise BusyError("too many grammars and schemas are being compiled")
        try:
            with self._lock:
                if key not in self._messages:
                    self._messages[key] = _tried(grammar)
                    if len(self._messages) > _MAX_REMEMBERED:
                        self._messages.popitem(last=False)
                return self._messages[key]
        finally:
            self._waiting.release()


def short_message(message: str) -> str:
    """Returns llguidance's message on one line, without parser state, in up to 300 characters."""
    line = " ".join(_APPENDIX.sub("", message).split()) or "the grammar cannot be used"
    line = "no text satisfies the grammar" if line in _NO_TEXT else line
    return line if len(line) <= _MAX_MESSAGE else line[: _MAX_MESSAGE - 3] + "..."


def _tried(grammar: str) -> str:
    """Compiles a grammar in a child process; returns its error message, empty without an error."""
    message = run_child(__spec__.name, grammar)
    return _TOO_COMPLEX if message is None else str(message)


def run_child(module: str, text: str) -> Any:
    """Runs a module in a child process and returns its result for `text`, decoded from JSON.

    The module has to call `serve_parent`. Returns None if the child fails or exceeds its limits.
    Raises BusyError if the child gets no CPU time for a minute, or has not ended after ten minutes.
    """
    command = [sys.executable, "-P", "-m", module]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment
    ) as child:
        try:
            output = _output_of(child, text.encode())
        except BaseException:
            child.kill()
            raise
    try:
        return json.loads(output) if child.returncode == 0 else None
    except ValueError:
        return None


def _output_of(child: "subprocess.Popen[bytes]", text: bytes) -> bytes:
    """Passes `text` to a child's standard input and returns the child's standard output."""
    seconds, num_idle = 0.0, 0
    for wait in range(_MAX_WAITS):
        try:
            return child.communicate(None if wait else text, _WAIT_SECONDS)[0]
        except subprocess.TimeoutExpired:
            before, seconds = seconds, _processor_seconds(child.pid)
            num_idle = 0 if seconds > before else num_idle + 1
        if num_idle == _MAX_IDLE_WAITS:
            break
    raise BusyError("the machine is too busy to compile a grammar or schema")


def _processor_seconds(pid: int) -> float:
    """Returns the CPU time, in seconds, of a child process that is running or a zombie."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def serve_parent(compute: Callable[[str], Any]) -> None:
    """Sets this child process's resource limits and prints `compute(text of stdin)` as JSON."""
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_STACK, (_STACK_BYTES, _STACK_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps(compute(sys.stdin.buffer.read().decode())))


class PlainBytes:
    """A vocabulary for llguidance's `TokenizerWrapper`: one token per byte, 255 as end token."""

    eos_token_id = 255
    bos_token_id = None
    tokens: ClassVar = [bytes([byte]) for byte in range(255)] + [b"<end>"]
    special_token_ids: ClassVar = [255]

    def __call__(self, data: bytes) -> list[int]:
        """Returns the token ids of a text: its bytes."""
        return list(data)


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
