"""Checks sharpi on a GPU, in steps with time limits, and writes a report; see gpu_check.sh.

A step that fails is reported, and the next one begins. The exit status is 1 if any failed.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from gpu.check_report import write_report
from gpu.check_step import ROOT, Outcome, run_step
from gpu.check_steps import Choice, steps

_SECONDS = 525  # under nine minutes, including the report
_TINY_SHAPE = {
    "layers": 2,
    "hidden": 256,
    "heads": 4,
    "kv-heads": 2,
    "head-dim": 64,
    "experts": 8,
    "used": 2,
    "expert-hidden": 256,
    "vocabulary": 2304,
}
_EXPERTS = 128


def main() -> None:
    """Parses the command line and runs the steps."""
    options = _parse_options()
    start = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="sharpi-gpu-check-", dir=options.folder))
    try:
        outcomes = list(_outcomes(options, folder, start))
    finally:
        if options.keep:
            print(f"kept: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    path = write_report(outcomes, options.output, time.monotonic() - start, options.dry_run)
    print(f"report: {path}")
    sys.exit(any(outcome.status == "failed" for outcome in outcomes))


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "bench-scripts" / "results")
    parser.add_argument("--folder", type=Path, help="for the build and the model of 18 GB")
    parser.add_argument("--layers", type=int, default=48, help="of the synthetic model")
    parser.add_argument("--ram", metavar="SIZE", help="RAM to count on for experts, as --ram")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="for everything")
    parser.add_argument("--only", help="names of steps, parted by commas")
    parser.add_argument("--keep", action="store_true", help="keep build, model and logs")
    parser.add_argument("--dry-run", action="store_true", help="without a GPU, with tiny sizes")
    options = parser.parse_args()
    options.output = options.output.resolve()
    return options


def _outcomes(options: argparse.Namespace, folder: Path, start: float) -> Iterator[Outcome]:
    shape = _TINY_SHAPE if options.dry_run else {"layers": options.layers}
    flags = tuple(text for name, size in shape.items() for text in (f"--{name}", str(size)))
    experts = shape.get("experts", _EXPERTS)
    choice = Choice(folder, options.dry_run, flags, experts, options.ram)
    environment = _environment(folder, builds=not options.only or "build" in options.only)
    tokens: dict[str, list[int]] = {}
    for step in steps(choice):
        if options.only and step.name not in options.only.split(","):
            continue
        left = options.seconds - (time.monotonic() - start)
        outcome = run_step(step, folder, environment, left)
        _hold_together(outcome, tokens)
        print(_line(outcome), flush=True)
        yield outcome


def _environment(folder: Path, builds: bool) -> dict[str, str]:
    """Returns the environment for this checkout, with the build step's library if it runs."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    library = {"SHARPI_NATIVE_LIBRARY": str(folder / "build" / "libsharpi_cpu.so")}
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYTHONUNBUFFERED": "1",
        **(library if builds else {}),
    }


def _hold_together(outcome: Outcome, tokens: dict[str, list[int]]) -> None:
    """Fails a step whose greedy tokens differ from those of the first step that had some."""
    found = outcome.findings.figures.get("tokens")
    if found is None:
        return
    for name, expected in list(tokens.items())[:1]:
        if found != expected:
            outcome.status = "failed"
            outcome.findings.failures.append(f"greedy tokens are not those of the step {name!r}")
    tokens[outcome.name] = found


def _line(outcome: Outcome) -> str:
    what = outcome.findings.failures or (
        outcome.findings.notes if outcome.status == "skipped" else []
    )
    tail = f": {what[0]}" if what else ""
    more = f" (and {len(what) - 1} more)" if len(what) > 1 else ""
    return f"{outcome.status:<8}{outcome.seconds:6.1f} s  {outcome.title}{tail}{more}"


if __name__ == "__main__":
    main()
