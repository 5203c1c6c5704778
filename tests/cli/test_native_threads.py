"""A thread that waits in native code does not abort the process at its end."""

import subprocess
import sys

import pytest

SOURCE = """
import ctypes, os, sys, threading
from sharpi.cli import main as program
from sharpi.system.process import are_left, start_native

read, write = os.pipe()
wait = lambda: ctypes.CDLL(None).read(read, ctypes.create_string_buffer(1), 1)
start_native(threading.Thread(target=wait, daemon=True))
assert are_left()
sys.argv = ["sharpi", "run", "missing.gguf", "hello"]
program.main()
print("reached")
"""


@pytest.mark.slow
def test_the_process_ends_with_its_code_and_all_of_its_output() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SOURCE],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "missing.gguf" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_without_such_threads_main_returns() -> None:
    source = (
        "from sharpi.cli.main import main\nimport sys\nsys.argv = ['sharpi', '--version']\nmain()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", source + "\nprint('reached')"], capture_output=True, text=True
    )
    assert ended.stdout.endswith("reached\n")
    assert ended.returncode == 0
