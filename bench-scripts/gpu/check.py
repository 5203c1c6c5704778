"""Checks sharpi on a GPU, in steps with time limits, and writes a report; see gpu_check.sh.

If a step fails, the next step still runs. The report is rewritten after every step, so that no
result is lost if the check is killed. The exit status is 1 if any step failed.
"""

import argparse
import importlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

from gpu.check_report import report_path, write_report
from gpu.check_step import ROOT, Outcome, run_step
from gpu.check_steps import PARTS, Choice, seconds_of, steps

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
    """Parses the command line, runs the steps, and writes the report after each step."""
    options = _parse_options()
    start, outcomes = time.monotonic(), list[Outcome]()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="sharpi-gpu-check-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if options.wheels:
            _install(options.wheels, folder)
        sys.path.insert(0, str(folder / "site"))  # also of an earlier call, for what a step needs
        importlib.invalidate_caches()
        for outcome in _outcomes(options, folder, start):
            outcomes.append(outcome)
            seconds = time.monotonic() - start
            path = write_report(outcomes, options.output, seconds, options.dry_run, options.part)
            _pack_logs(outcomes, folder, path.with_name(f"{path.stem}-logs.tar.gz"))
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    path = report_path(outcomes, options.output, options.dry_run, options.part)
    print(f"report: {path}")
    sys.exit(any(outcome.status == "failed" for outcome in outcomes))


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "bench-scripts" / "results")
    parser.add_argument(
        "--folder", type=Path, help="for the build and the models of 25 GB; kept, and used again"
    )
    parser.add_argument(
        "--wheels", type=Path, help="a folder of wheels to use beside what is there"
    )
    parser.add_argument(
        "--part", type=int, choices=PARTS,
        help="one of four, in nine minutes each; 0 before them names missing packages, builds, and"
        " writes models",
    )  # fmt: skip
    parser.add_argument("--layers", type=int, default=48, help="of the synthetic model")
    parser.add_argument("--ram", metavar="SIZE", help="RAM to count on for experts, as --ram")
    parser.add_argument("--seconds", type=float, help="for everything")
    parser.add_argument("--only", help="names of steps, parted by commas")
    parser.add_argument("--dry-run", action="store_true", help="without a GPU, with tiny sizes")
    options = parser.parse_args()
    options.output = options.output.resolve()
    options.folder = options.folder and options.folder.resolve()
    if options.seconds is None:
        options.seconds = seconds_of(options.part, is_dry=options.dry_run)
    return options


def _install(wheels: Path, folder: Path) -> None:
    """Installs wheels into the subfolder `site`, from which every step imports packages."""
    site = folder / "site"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
    command += ["--no-compile", "--upgrade", "--target", str(site)]
    paths = [str(path) for path in sorted(wheels.glob("*.whl"))]
    if paths:
        subprocess.run([*command, *paths], check=False)


def _pack_logs(outcomes: Sequence[Outcome], folder: Path, path: Path) -> None:
    """Packs the output of all steps into an archive; the report has only the last lines."""
    with tarfile.open(path, "w:gz") as archive:
        for outcome in outcomes:
            log = folder / f"{outcome.name}.log"
            if log.exists():
                archive.add(log, log.name)


def _outcomes(options: argparse.Namespace, folder: Path, start: float) -> Iterator[Outcome]:
    shape = _TINY_SHAPE if options.dry_run else {"layers": options.layers}
    flags = tuple(text for name, size in shape.items() for text in (f"--{name}", str(size)))
    experts = shape.get("experts", _EXPERTS)
    choice = Choice(folder, options.dry_run, flags, experts, options.ram)
    environment = _environment(folder, builds=not options.only or "build" in options.only)
    tokens: dict[str, list[int]] = {}
    for step in steps(choice, options.part):
        if options.only and step.name not in options.only.split(","):
            continue
        left = options.seconds - (time.monotonic() - start)
        outcome = run_step(step, folder, environment, left)
        _hold_together(outcome, tokens)
        print(_line(outcome), flush=True)
        yield outcome


def _environment(folder: Path, builds: bool) -> dict[str, str]:
    """Returns the environment variables of the steps, which select this checkout.

    The steps load the native library that the build step makes. If that step is not run and its
    library does not exist, they load the library installed with sharpi.
    """
    paths = [str(folder / "site"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    library = folder / "build" / "libsharpi_cpu.so"
    generator = {"CMAKE_GENERATOR": "Ninja"} if shutil.which("ninja") else {}
    return {
        **generator,
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYTHONUNBUFFERED": "1",
        **({"SHARPI_NATIVE_LIBRARY": str(library)} if builds or library.exists() else {}),
    }


def _hold_together(outcome: Outcome, tokens: dict[str, list[int]]) -> None:
    """Marks a step as failed if its greedy tokens differ from those of the first step with any.

    `tokens`: the greedy tokens of the steps so far, by name.
    """
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
