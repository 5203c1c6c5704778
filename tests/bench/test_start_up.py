"""The start-up budget: how long a user waits for the help, and for a large model's first token.

All other work on a machine only adds time, so the best of a few runs is what counts.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from synthetic_moe import Shape, write_model

pytestmark = pytest.mark.speed
MAX_HELP_SECONDS = 0.3
MAX_FIRST_TOKEN_SECONDS = 0.45
RUNS = 7
LARGE = Shape(layers=12)  # of Qwen3-30B-A3B: 4.6 GiB
LARGE_BYTES = 5 << 30
PROGRAM = (sys.executable, "-m", "sharpi")


@pytest.fixture(scope="module")
def large_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("large")
    if shutil.disk_usage(folder).free < 2 * LARGE_BYTES:
        pytest.skip("the disk has no 10 GiB to spare")
    if os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") < 2 * LARGE_BYTES:
        pytest.skip("the memory has no 10 GiB to spare, so the file would not stay cached")
    path = folder / "large.gguf"
    write_model(path, LARGE)
    yield path
    path.unlink()


def seconds_to_output(*arguments: str) -> float:
    """Returns the seconds until the program prints its first byte; fails if the program fails."""
    start = time.perf_counter()
    command = [*PROGRAM, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
        assert program.stdout is not None
        assert program.stdout.read(1)
        seconds = time.perf_counter() - start
        program.stdout.read()
    assert program.returncode == 0
    return seconds


def test_help() -> None:
    assert min(seconds_to_output("--help") for _ in range(RUNS)) < MAX_HELP_SECONDS


@pytest.mark.native
def test_first_token_of_a_large_model(large_model: Path) -> None:
    run = ("run", str(large_model), "-n", "1", "-p", "Once")
    assert min(seconds_to_output(*run) for _ in range(RUNS)) < MAX_FIRST_TOKEN_SECONDS
