"""The whole program on x86-64 processors that this machine is not: an emulator runs it.

Nehalem has SSE4.2, the least that NumPy runs on; SandyBridge has AVX, Haswell AVX2. Kernels have
tests of their own; here every command must start, find the kernels that the processor has, and
compute what it does elsewhere.
"""

import json
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
import pytest
from build_cache import built

ROOT = Path(__file__).parents[2]
REFERENCES = ROOT / "tests" / "references" / "data"
EMULATOR = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
PROCESSORS = {"Nehalem": "sse41", "Haswell": "avx2"}
SECONDS = 300

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="this machine is not x86-64"),
    pytest.mark.skipif(not EMULATOR, reason="no qemu-x86_64: install qemu-user"),
]


PROGRAM = Path(__file__).with_name("several_commands.py")
MODELS = {"Nehalem": "deepseek2-lite", "Haswell": "gpt-oss"}
NUM_TOKENS = 20  # of a reference's 32: past two windows of gpt-oss
COMMANDS = {
    "version": ["--version"],
    "doctor": ["doctor", "."],
}


@pytest.fixture(params=PROCESSORS)
def processor(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def python(processor: str, *arguments: str) -> list[str]:
    return [str(EMULATOR), "-cpu", processor, sys.executable, *arguments]


def environment() -> dict[str, str]:
    """Returns the environment without the developer's settings, except the library to be tested.

    OPENBLAS_CORETYPE would have NumPy use instructions that the emulated processor lacks.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SHARPI_", "OPENBLAS_"))}
    library = os.environ.get("SHARPI_NATIVE_LIBRARY")
    return kept | ({"SHARPI_NATIVE_LIBRARY": library} if library else {})


class Outcome(NamedTuple):
    """What the commands and a server did on a processor, all of them in one process."""

    folder: Path
    results: dict[str, tuple[int, str]]

    def output(self, name: str) -> str:
        """The output of a command, which has to have ended well."""
        code, text = self.results[name]
        assert code == 0, text
        return text


@pytest.fixture
def outcome(processor: str, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Runs the commands once a test run; workers that run other tests of the file read the same."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = base / f"commands-on-{processor}"
    folder.mkdir(exist_ok=True)
    commands = COMMANDS | {"logits": logits_command(MODELS[processor], folder)}
    written = built(folder / "results.json", partial(run_all, processor, [*commands.values()]))
    names = [*commands, "serve"]
    return Outcome(folder, dict(zip(names, json.loads(written.read_text()), strict=True)))


def logits_command(name: str, folder: Path) -> list[str]:
    with np.load(REFERENCES / f"{name}.npz") as reference:
        np.save(folder / f"{name}-ids.npy", reference["tokens"][:NUM_TOKENS])
    tokens, output = folder / f"{name}-ids.npy", folder / f"{name}.npy"
    model = REFERENCES / f"{name}.gguf"
    given = ("--tokens", str(tokens), "--output", str(output), "--precision", "f32")
    return ["logits", str(model), *given]


def run_all(processor: str, commands: list[list[str]], target: Path) -> None:
    """Writes the exit codes and outputs of the commands, and at last those of a server."""
    errors = target.with_suffix(".err")
    with errors.open("w") as file:
        program = subprocess.Popen(
            python(processor, str(PROGRAM), str(target)),
            cwd=ROOT,
            env=environment() | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        )
    try:
        answer = served_answer(program, json.dumps(commands))
        served = program.wait(SECONDS), answer
    finally:
        program.kill()
    assert target.exists(), errors.read_text()
    target.write_text(json.dumps([*json.loads(target.read_text()), served]))


def served_answer(program: subprocess.Popen[str], typed: str) -> str:
    """Returns the answer of the server that a program becomes, and stops it."""
    assert program.stdin is not None
    assert program.stdout is not None
    try:
        program.stdin.write(typed)
        program.stdin.close()
        if not select.select([program.stdout], [], [], SECONDS)[0]:
            return json.dumps([0, "it says nothing"])
        return asked(program.stdout.readline().rpartition(" ")[2].strip())
    finally:
        program.send_signal(signal.SIGTERM)


def asked(server: str) -> str:
    """Returns the status and the text of an answer of the model that ships, as a JSON list."""
    body = {"model": "stories-moe", "prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}
    try:
        url = f"{server}/v1/completions"
        answer = httpx.post(url, json=body, timeout=SECONDS, trust_env=False)
    except httpx.HTTPError as error:
        return json.dumps([0, str(error)])
    return json.dumps([answer.status_code, answer.text])


def test_version_names_the_kernels(processor: str, outcome: Outcome) -> None:
    version, kernels = outcome.output("version").splitlines()
    assert version.startswith("sharpi ")
    assert kernels.startswith(f"CPU kernels: {PROCESSORS[processor]} (")
    assert "needs what this processor lacks: " in kernels


def test_avx_without_avx2_is_not_enough_for_its_kernels() -> None:
    command = python("SandyBridge", "-m", "sharpi", "--version")
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert "CPU kernels: sse41 (avx2 needs what this processor lacks: avx2, " in done.stdout


def test_doctor(processor: str, outcome: Outcome) -> None:
    out = outcome.output("doctor")
    assert f"kernels        {PROCESSORS[processor]}" in out
    assert "GB/s" in out


def test_logits_of_a_reference_model(processor: str, outcome: Outcome) -> None:
    outcome.output("logits")
    name = MODELS[processor]
    with np.load(REFERENCES / f"{name}.npz") as reference:
        expected = reference["logits"][:NUM_TOKENS]
    found = np.load(outcome.folder / f"{name}.npy")
    assert relative_error(found, expected) < 2e-3  # as in tests/engine/test_references.py


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def test_a_served_answer(outcome: Outcome) -> None:
    status, text = json.loads(outcome.output("serve"))
    assert status == 200, text
    assert json.loads(text)["choices"][0]["text"] == ", there was a"
