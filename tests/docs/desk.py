"""Where documented commands are run: a folder with the files they name, a home and a hub."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
from typed_command import TypedCommand, arguments_of

from sharpi.resources import demo_model

_PATIENCE_SECONDS = 120
_SCHEMA = """{
  "type": "object", "additionalProperties": false, "required": ["name", "legs"],
  "properties": {"name": {"type": "string", "maxLength": 20}, "legs": {"type": "integer"}}
}"""
_READY = "serving "
_CONVERSATION = "Once upon a time\n/exit\n"


class Desk:
    """A folder as the documents take it for granted; `model.gguf` is the demo model."""

    def __init__(self, folder: Path, hub_endpoint: str) -> None:
        self.folder = folder
        (folder / "model.gguf").symlink_to(demo_model())
        (folder / "animal.json").write_text(_SCHEMA)
        (folder / "yes-or-no.gbnf").write_text('root ::= "yes" | "no"\n')
        self._environment = _environment(folder, hub_endpoint)

    def run(self, command: str) -> str:
        """What a command wrote to stdout; fails where its exit code is not 0."""
        if "sharpi serve" in command:
            return self._serve(command)
        program = self._start(command)
        out, err = program.communicate(_CONVERSATION, timeout=_PATIENCE_SECONDS)
        assert program.returncode == 0, f"{command}: exit code {program.returncode}\n{err}"
        return out

    def _serve(self, command: str) -> str:
        """Starts a server, asks for its page, and stops it."""
        program = self._start(command)
        assert program.stdout is not None
        line = program.stdout.readline()
        try:
            assert line.startswith(_READY), command
            httpx.get(line.split()[-1], timeout=_PATIENCE_SECONDS).raise_for_status()
        finally:
            program.send_signal(signal.SIGTERM)
            _, err = program.communicate(timeout=_PATIENCE_SECONDS)
        assert program.returncode == 0, f"{command}: exit code {program.returncode}\n{err}"
        return line

    def _start(self, command: str) -> subprocess.Popen[str]:
        arguments = arguments_of(command)
        start = subprocess.Popen if arguments is None else TypedCommand
        return start(
            ["bash", "-c", command] if arguments is None else arguments,
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.PIPE if "sharpi chat" in command else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def _environment(folder: Path, hub_endpoint: str) -> dict[str, str]:
    """Without the developer's SHARPI_* and HF_* variables; output is not buffered."""
    runtime = folder / "runtime"
    runtime.mkdir(mode=0o700)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SHARPI_", "HF_"))}
    library = os.environ.get("SHARPI_NATIVE_LIBRARY")
    return kept | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder / "home"),
        "XDG_RUNTIME_DIR": str(runtime),
        "HF_ENDPOINT": hub_endpoint,
        "SHARPI_PORT": "0",
        "PYTHONUNBUFFERED": "1",
        **({"SHARPI_NATIVE_LIBRARY": library} if library else {}),
    }
