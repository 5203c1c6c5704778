"""Children: processes that do costly work on a text, with bounds on their time, memory and stack.

One child runs at a time and only a few requests may wait, so that a client with costly requests
occupies one processor at most.
"""

import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sharpi.errors import BusyError

CPU_SECONDS = 2
MEMORY_BYTES = 1 << 30
_NICENESS = 10  # the answers of others go first
_WALL_SECONDS = 60  # for its processor seconds on a busy machine
_STACK_BYTES = 1 << 20  # threads have several times as much
_MAX_WAITING = 6


class Children:
    """Lets one thread at a time start a child; any thread may use it."""

    def __init__(self) -> None:
        self._places = threading.BoundedSemaphore(_MAX_WAITING)
        self._lock = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Waits for the turn of the calling thread; raises BusyError if too many others wait."""
        if not self._places.acquire(blocking=False):
            raise BusyError("too many grammars and schemas are being compiled")
        try:
            with self._lock:
                yield
        finally:
            self._places.release()


def ask_child(module: str, text: str) -> Any:
    """Runs a module in a child process and returns its answer to `text`.

    The module has to call `answer_parent`. Returns None if the child fails or exceeds its limits;
    raises BusyError if it does not end in time.
    """
    command = [sys.executable, "-P", "-m", module]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        child = subprocess.run(
            command,
            input=text.encode(),
            capture_output=True,
            env=environment,
            timeout=_WALL_SECONDS,
        )
        return json.loads(child.stdout) if child.returncode == 0 else None
    except subprocess.TimeoutExpired:  # it had less than its seconds of processor time
        raise BusyError("the machine is too busy to compile a grammar or schema") from None
    except ValueError:
        return None


def answer_parent(answer: Callable[[str], Any]) -> None:
    """Sets a child's limits, calls `answer` with the text on stdin and prints the JSON of it."""
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_STACK, (_STACK_BYTES, _STACK_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps(answer(sys.stdin.buffer.read().decode())))
