"""A pytest plug-in that appends a line of JSON to a file when a test ends.

So no result is lost if pytest is killed. The file's path is in SHARPI_RESULT_LINES. With
pytest-xdist, only the controller process writes.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

VARIABLE = "SHARPI_RESULT_LINES"


def pytest_runtest_logreport(report: Any) -> None:
    """Writes the result of a test, or of a set-up or tear-down that did not pass."""
    if report.when == "call" or report.outcome != "passed":
        _write(report.nodeid, report.outcome, report.longrepr)


# The errors after which a CUDA context answers every later call with the same error.
_LAST_ERRORS = (
    *("IllegalAddress", "ILLEGAL_ADDRESS", "MisalignedAddress", "MISALIGNED_ADDRESS"),
    *("LaunchFailure", "LAUNCH_FAILED", "LaunchTimeout", "LAUNCH_TIMEOUT", "HardwareStackError"),
)


def pytest_runtest_makereport(item: Any, call: Any) -> None:
    """Ends a worker whose GPU answers nothing more: xdist names the test and starts another."""
    text = "" if call.excinfo is None else str(call.excinfo.value)
    if "PYTEST_XDIST_WORKER" in os.environ and any(each in text for each in _LAST_ERRORS):
        print(f"{item.nodeid}: {text}", file=sys.stderr, flush=True)
        os._exit(1)


def pytest_collectreport(report: Any) -> None:
    """Writes the name of a test file that cannot be imported, and the reason."""
    if report.outcome == "failed":
        _write(report.nodeid, "failed", report.longrepr)


def _write(name: str, outcome: str, detail: Any) -> None:
    path = os.environ.get(VARIABLE)
    if path is None or "PYTEST_XDIST_WORKER" in os.environ:
        return
    crash = getattr(detail, "reprcrash", None)
    reason = (
        detail[2] if isinstance(detail, tuple) else getattr(crash, "message", str(detail or ""))
    )
    lines = [line for line in str(reason).splitlines() if line.strip()]
    text = lines[-1] if crash is None and lines else " ".join(lines)
    row = {"name": name, "outcome": outcome, "reason": text.removeprefix("E").strip()[:300]}
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
