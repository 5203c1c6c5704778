"""Child processes for costly work on a text, with limits on CPU time, memory and stack.

One child process runs at a time, and at most six threads run or await one. So a client with costly
requests occupies at most one CPU core.
"""

import json
import os
import resource
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, TypeVar

from sharpi.errors import BusyError

CPU_SECONDS = 2
MEMORY_BYTES = 1 << 30
_NICENESS = 10  # lower priority than the engine's threads
# The length of one wait, and the limits on waits: in a row without CPU time of the child, and in
# all. Waits are counted because the clock goes on while the parent itself is stopped.
_WAIT_SECONDS = 1.0
_MAX_IDLE_WAITS, _MAX_WAITS = 60, 600
_STACK_BYTES = 1 << 20  # threads have several times as much
_MAX_WAITING = 6


T = TypeVar("T")


class ChildProcesses:
    """Limits child processes to one at a time; thread-safe."""

    def __init__(self) -> None:
        self._waiting = threading.BoundedSemaphore(_MAX_WAITING)
        self._lock = threading.Lock()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Waits for and holds the lock for running a child process.

        Raises BusyError if six threads already hold or await the lock.
        """
        if not self._waiting.acquire(blocking=False):
            raise BusyError("too many grammars and schemas are being compiled")
        try:
            with self._lock:
                yield
        finally:
            self._waiting.release()


class ChildResultCache(Generic[T]):
    """Caches the newest `most` results of child processes by the hash of their input text.

    Thread-safe.
    """

    def __init__(self, children: ChildProcesses, most: int) -> None:
        self._children, self._most = children, most
        self._known: OrderedDict[bytes, T] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, text: str, run: Callable[[str], T]) -> T:
        """Returns the cached result for the input `text`, or else `run(text)`.

        Only one thread at a time calls `run`. Raises BusyError if too many threads wait.
        """
        key = sha256(text.encode()).digest()
        known = self._known.get(key)
        return self._computed(key, text, run) if known is None else known

    def _computed(self, key: bytes, text: str, run: Callable[[str], T]) -> T:
        with self._children.exclusive():
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = run(text)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
            return known


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
    return _decoded(output) if child.returncode == 0 else None


def _output_of(child: "subprocess.Popen[bytes]", text: bytes) -> bytes:
    """Passes `text` to a child's standard input and returns the child's standard output.

    Raises BusyError if the child gets no CPU time for a minute, or has not ended after ten minutes.
    """
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


def _decoded(output: bytes) -> Any:
    try:
        return json.loads(output)
    except ValueError:
        return None


def serve_parent(compute: Callable[[str], Any]) -> None:
    """Sets this child process's resource limits and prints `compute(text of stdin)` as JSON."""
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_STACK, (_STACK_BYTES, _STACK_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps(compute(sys.stdin.buffer.read().decode())))
