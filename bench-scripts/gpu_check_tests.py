"""Runs the tests that need a GPU with pytest; here it is a failure if none of them ran."""

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

from gpu.check_step import ROOT, Findings

_MOST_NAMES = 12


def main() -> None:
    """Parses the command line and runs the tests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--dry-run", action="store_true", help="one small file, on the CPU")
    options = parser.parse_args()
    findings = Findings()
    chosen = (
        ["tests/cuda/launchers/test_elementwise.py", "-m", "not gpu"]
        if options.dry_run
        else ["-m", "gpu"]
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tests.xml"
        command = [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *(f"--junitxml={path}", *chosen),
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if path.exists():
            read_results(findings, path)
        else:
            lines = (done.stdout + done.stderr).strip().splitlines()
            findings.failures.append(f"pytest ended early: {' / '.join(lines[-3:])}")
    sys.exit(findings.finish(options.json))


def read_results(findings: Findings, path: Path) -> None:
    """Counts the results, and lists the tests that did not pass."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        kinds = {child.tag: child.get("message", "") for child in case}
        name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
        if kinds.keys() & {"failure", "error"}:
            counts["failed"] += 1
            message = kinds.get("failure") or kinds.get("error") or ""
            findings.failures.append(f"{name}: {' '.join(message.split())[:200]}")
        elif "skipped" in kinds:
            counts["skipped"] += 1
            findings.notes.append(f"{name} was skipped: {kinds['skipped']}")
        else:
            counts["passed"] += 1
    findings.figures = dict(counts)
    _shorten(findings.failures)
    _shorten(findings.notes)
    if not counts["passed"]:
        findings.failures.append("no test ran on the GPU")


def _shorten(lines: list[str]) -> None:
    more = len(lines) - _MOST_NAMES
    if more > 0:
        lines[_MOST_NAMES:] = [f"and {more} more"]


if __name__ == "__main__":
    main()
