"""A step of the check: a program with a time limit, which writes its findings as JSON.

This module needs no packages, so that a missing package is a finding rather than a traceback.
"""

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[2]
Status = Literal["passed", "failed", "skipped"]
_FOLDERS = re.compile(r"(?<![\w.:/])/(?:[\w.+~-]+/)+")
_LAST_LINES = 3
_OWN_ERROR = re.compile(r"sharpi\.errors\.\w+: (.+)")  # the last line of a traceback
_LEAST_SECONDS = 3.0


@dataclass(slots=True)
class Findings:
    """The findings of a step's program: figures, and lists of one-line failures and notes."""

    figures: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_skipped: bool = False

    def save(self, path: Path | None) -> None:
        """Writes the findings so far, so that a program that is killed later loses none of them."""
        if path is not None:
            new = path.with_suffix(".new")
            new.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
            new.replace(path)

    def finish(self, path: Path | None) -> int:
        """Prints failures and notes, writes the findings to `path`, and returns the exit status."""
        for line in self.notes + self.failures:
            print(line, file=sys.stderr)
        self.save(path)
        return 1 if self.failures else 0


@dataclass(frozen=True, slots=True)
class Step:
    """A program with arguments and a time limit of `seconds`.

    `has_findings`: whether the program accepts `--json PATH` and writes findings.
    """

    name: str
    title: str
    command: tuple[str, ...]
    seconds: float
    has_findings: bool = True
    needs: tuple[str, ...] = ()  # packages without which the step is skipped
    makes: Path | None = None  # a file that it makes for other steps and later runs of the check
    made_of: str = ""  # identifies the inputs of `makes`; if it changes, the file is made again

    @property
    def stamp(self) -> Path | None:
        """The path of the file with the `made_of` of a complete `makes`; None without `makes`."""
        return None if self.makes is None else self.makes.with_name(f"{self.makes.name}.made")

    @property
    def is_done(self) -> bool:
        """True if an earlier run in the same folder made the file `makes` from the same inputs."""
        if self.makes is None or self.stamp is None or not self.stamp.exists():
            return False
        return self.makes.exists() and self.stamp.read_text(encoding="utf-8") == self.made_of


@dataclass(slots=True)
class Outcome:
    """The result of a step: its status, seconds and findings."""

    name: str
    title: str
    status: Status
    seconds: float
    findings: Findings


def run_step(step: Step, folder: Path, environment: dict[str, str], left: float) -> Outcome:
    """Runs a step's program for at most its time limit and `left` seconds; never raises.

    A step is not repeated if an earlier run in the same folder made its file.
    """
    if step.is_done:
        findings = Findings(notes=["made by an earlier call"])
        return Outcome(step.name, step.title, "passed", 0.0, findings)
    if missing := [name for name in step.needs if importlib.util.find_spec(name) is None]:
        findings = Findings(notes=[f"without {', '.join(missing)}"], is_skipped=True)
        return Outcome(step.name, step.title, "skipped", 0.0, findings)
    limit, start = min(step.seconds, left), time.monotonic()
    if limit < _LEAST_SECONDS:
        failures = ["not begun: the time of all steps together is up"]
        return Outcome(step.name, step.title, "failed", 0.0, Findings(failures=failures))
    path = folder / f"{step.name}.json"
    command = [*step.command, *(("--json", str(path)) if step.has_findings else ())]
    log = folder / f"{step.name}.log"
    status = _run(command, log, environment, limit)
    findings = _read(path) if step.has_findings else Findings()
    if status == 0 and step.stamp is not None:
        step.stamp.write_text(step.made_of, encoding="utf-8")
    if status is None:
        findings.failures.append(f"took longer than {limit:.0f} s")
    elif status and not findings.failures:
        findings.failures.append(f"exit status {status}: {_last_lines(log)}")
    _clean(findings)
    result: Status = "failed" if findings.failures else "passed"
    if findings.is_skipped and not findings.failures:
        result = "skipped"
    return Outcome(step.name, step.title, result, time.monotonic() - start, findings)


def _run(command: list[str], log: Path, environment: dict[str, str], limit: float) -> int | None:
    """Runs a command for at most `limit` seconds, with its output in `log`.

    Returns the exit status; None if the program and its child processes had to be killed.
    """
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT, env=environment,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            output.write(f"{error}\n".encode())
            return 127
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None


def _read(path: Path) -> Findings:
    if not path.exists():
        return Findings()
    try:
        return Findings(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:  # a program that was killed while it wrote
        return Findings(failures=[f"its findings cannot be read: {error}"])


def _last_lines(log: Path) -> str:
    """Returns the last lines of a program's output, or only the message of a final sharpi error."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    if lines and (own := _OWN_ERROR.match(lines[-1])):
        return own[1]
    return " / ".join(line.strip() for line in lines[-_LAST_LINES:])


def _clean(findings: Findings) -> None:
    findings.failures = [without_places(line) for line in findings.failures]
    findings.notes = [without_places(line) for line in findings.notes]


def without_places(text: str) -> str:
    """Returns the text on one line, without this machine's folder paths and host name."""
    text = _FOLDERS.sub("", " ".join(text.split()))
    return re.sub(rf"\b{re.escape(socket.gethostname())}\b", "this machine", text)
