"""Runs compute-sanitizer: memcheck finds invalid accesses, racecheck data races."""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

from gpu.check_step import ROOT, Findings

PROGRAM = "compute-sanitizer"
_PLACES = ("/usr/local/cuda/bin", "/opt/cuda/bin")
_ERROR_STATUS = 86
_SUMMARY = re.compile(r"(ERROR|RACECHECK) SUMMARY: (.*)")
_FAULT = re.compile(r"=+ +((?:Invalid|Error|Race|Misaligned|Program hit|Device not).*)")
_MOST_FAULTS = 5


def main() -> None:
    """Parses the command line and runs compute-sanitizer, if it is installed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tool", choices=("memcheck", "racecheck"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--dry-run", action="store_true", help="the run alone, on the CPU")
    options = parser.parse_args()
    findings, found = Findings(), find_program()
    if found is None and not options.dry_run:
        findings.is_skipped = True
        findings.notes.append(f"{PROGRAM} is not installed; it comes with the CUDA toolkit")
    else:
        _check(findings, options.tool, found or "", options.dry_run)
    sys.exit(findings.finish(options.json))


def find_program() -> str | None:
    """Returns the path of compute-sanitizer; None if it is not installed."""
    return shutil.which(PROGRAM) or next(
        (str(path) for folder in _PLACES if (path := Path(folder) / PROGRAM).exists()), None
    )


def _check(findings: Findings, tool: str, program: str, is_dry: bool) -> None:
    run = [sys.executable, "bench-scripts/gpu/short_run.py"]
    watched = [
        *(program, "--tool", tool, "--error-exitcode", str(_ERROR_STATUS)),
        *("--report-api-errors", "no", "--print-limit", "20"),
    ]
    command = [*run, "--dry-run"] if is_dry else [*watched, *run]
    if is_dry:
        findings.notes.append("a dry run: nothing watched it")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    read_output(findings, done.returncode, done.stdout + done.stderr)


def read_output(findings: Findings, status: int, output: str) -> None:
    """Adds the tool's summary, and the faults it found, to the findings."""
    summary = _SUMMARY.search(output)
    if summary:
        findings.notes.append(summary[2].strip())
        findings.figures["summary"] = summary[2].strip()
    if status == 0:
        return
    faults = list(dict.fromkeys(match[1].strip() for match in _FAULT.finditer(output)))
    findings.failures += faults[:_MOST_FAULTS]
    if not faults:
        lines = [line for line in output.strip().splitlines() if line.strip()]
        findings.failures.append(f"exit status {status}: {' / '.join(lines[-3:])}")


if __name__ == "__main__":
    main()
