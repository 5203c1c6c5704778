"""Runs the tests that need a GPU with pytest, those of kernels first; fails if no test ran.

At the time limit, the results so far are reported, with the folders whose tests did not end.
"""

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

from gpu.check_step import ROOT, Findings
from gpu.result_lines import VARIABLE

# Folders and files in the order of running: kernels, then slots, then whole models.
GPU_TESTS = ("tests/cuda/launchers", "tests/device", "tests/cuda/expert_slots", "tests/cuda")
_DRY_TESTS = ("tests/cuda/launchers/test_elementwise.py",)
_PROCESSES = 8
_SECONDS_EACH = 60
_MOST_NAMES = 12


def main() -> None:
    """Parses the command line, runs the tests of each folder, and reports their results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=190, help="for all tests")
    parser.add_argument("--dry-run", action="store_true", help="one small file, on the CPU")
    options = parser.parse_args()
    findings, end = Findings(), time.monotonic() + options.seconds
    chosen = _DRY_TESTS if options.dry_run else GPU_TESTS
    with TemporaryDirectory() as folder:
        path = Path(folder) / "results"
        path.touch()
        seen: list[str] = []
        for place in chosen:
            command = pytest_command(place, seen, "not gpu" if options.dry_run else "gpu")
            if not _run(command, path, end - time.monotonic()):
                findings.failures.append(f"{place}: the time was up before all tests had ended")
            seen.append(place)
            read_results(findings, path)
    finish_results(findings)
    sys.exit(findings.finish(options.json))


def pytest_command(place: str, without: Sequence[str], mark: str) -> list[str]:
    """Returns the pytest command for the tests with a marker in one folder.

    `without`: folders and files that have run before. If a file cannot be imported, the tests of
    the other files still run.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p"]
    command += ["gpu.result_lines", "--continue-on-collection-errors", "-m", mark, place]
    command += [f"--ignore={each}" for each in without if each.startswith(f"{place}/")]
    if _has("xdist") and not place.endswith(".py"):
        command += ["-n", str(min(_PROCESSES, len(os.sched_getaffinity(0))))]
    if _has("pytest_timeout"):
        # A thread, because a signal does not interrupt a wait for the GPU.
        command += [f"--timeout={_SECONDS_EACH}", "--timeout-method=thread"]
    return command


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _run(command: list[str], results: Path, seconds: float) -> bool:
    """Runs pytest; returns False if it and its child processes had to be killed after `seconds`."""
    if seconds <= 0:
        return False
    paths = os.pathsep.join((str(ROOT / "bench-scripts"), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, VARIABLE: str(results), "PYTHONPATH": paths}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return False
    return True


def read_results(findings: Findings, path: Path) -> None:
    """Adds the results in the file to the findings, and empties the file."""
    counts = findings.figures or {"passed": 0, "failed": 0, "skipped": 0}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:  # the last line of a process that was killed
            continue
        counts[row["outcome"]] += 1
        name = row["name"].removeprefix("tests/")
        if row["outcome"] == "failed":
            findings.failures.append(f"{name}: {row['reason'][:200]}")
        elif row["outcome"] == "skipped":
            findings.notes.append(f"{name} was skipped: {row['reason'][:200]}")
    findings.figures = counts
    path.write_text("")


def finish_results(findings: Findings) -> None:
    """Shortens the lists of failures and notes, and adds a failure if no test passed."""
    _shorten(findings.failures)
    _shorten(findings.notes)
    if not findings.figures.get("passed"):
        findings.failures.append("no test ran on the GPU")


def _shorten(lines: list[str]) -> None:
    more = len(lines) - _MOST_NAMES
    if more > 0:
        lines[_MOST_NAMES:] = [f"and {more} more"]


if __name__ == "__main__":
    main()
