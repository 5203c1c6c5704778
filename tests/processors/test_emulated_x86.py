"""The whole program on x86-64 processors that this machine is not: an emulator runs it.

Nehalem has SSE4.2, SandyBridge AVX, Haswell AVX2. Kernels have tests of their own; here every
command must start, find the kernels that the processor has, and compute what it does elsewhere.
"""

import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
REFERENCES = ROOT / "tests" / "references" / "data"
EMULATOR = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
PROCESSORS = {"Nehalem": "portable", "SandyBridge": "portable", "Haswell": "avx2"}
MACHINE = "this machine"
SECONDS = 300

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="this machine is not x86-64"),
]


@pytest.fixture(params=[MACHINE, *PROCESSORS], ids=lambda name: name.replace(" ", "-"))
def processor(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name != MACHINE and not EMULATOR:
        pytest.skip("no qemu-x86_64: install qemu-user")
    return name


def command(processor: str, *arguments: str) -> list[str]:
    emulator = [] if processor == MACHINE else [str(EMULATOR), "-cpu", processor]
    return [*emulator, sys.executable, "-m", "sharpi", *arguments]


def environment() -> dict[str, str]:
    """No settings of the developer's but the library to be tested."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SHARPI_")}
    library = os.environ.get("SHARPI_NATIVE_LIBRARY")
    return kept | ({"SHARPI_NATIVE_LIBRARY": library} if library else {})


def sharpi(processor: str, *arguments: str) -> str:
    """Returns the stdout of a command that ends well."""
    result = subprocess.run(
        command(processor, *arguments),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_version_names_the_kernels(processor: str) -> None:
    version, kernels = sharpi(processor, "--version").splitlines()
    assert version.startswith("sharpi ")
    if processor != MACHINE:
        assert kernels.startswith(f"CPU kernels: {PROCESSORS[processor]} (")
        assert "needs what this processor lacks: " in kernels


def test_doctor(processor: str, tmp_path: Path) -> None:
    out = sharpi(processor, "doctor", str(tmp_path))
    expected = PROCESSORS.get(processor, "")
    assert f"kernels        {expected}" in out
    assert "GB/s" in out


def test_the_model_that_ships_tells_a_story(processor: str) -> None:
    story = sharpi(processor, "run", "--temp", "0", "-n", "16")
    assert story.startswith("Once upon a time, there was a little ")


def test_bench(processor: str) -> None:
    out = sharpi(processor, "bench", "-n", "2", "-p", "8", "-r", "1")
    assert "tg2" in out
    assert f"{PROCESSORS.get(processor, '')}" in out.splitlines()[-1]


@pytest.mark.parametrize("name", ["qwen3moe", "deepseek2-lite", "gpt-oss"])
def test_logits_of_reference_models(processor: str, name: str, tmp_path: Path) -> None:
    with np.load(REFERENCES / f"{name}.npz") as reference:
        ids, expected = reference["tokens"], reference["logits"]
    np.save(tmp_path / "ids.npy", ids)
    model, out = REFERENCES / f"{name}.gguf", tmp_path / "logits.npy"
    arguments = ("--tokens", str(tmp_path / "ids.npy"), "--output", str(out))
    sharpi(processor, "logits", str(model), *arguments, "--precision", "f32")
    assert relative_error(np.load(out), expected) < 2e-3  # as in tests/engine/test_references.py


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.fixture
def server(processor: str) -> Iterator[str]:
    """Yields the address of `sharpi serve` with the model that ships."""
    process = subprocess.Popen(
        command(processor, "serve", "--port", "0"),
        cwd=ROOT,
        env=environment() | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    yield process.stdout.readline().rpartition(" ")[2].strip()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=SECONDS) == 0


def test_a_served_answer(server: str) -> None:
    body = {"model": "stories-moe", "prompt": "Once upon a time", "max_tokens": 4}
    answer = httpx.post(f"{server}/v1/completions", json=body, timeout=SECONDS, trust_env=False)
    assert answer.status_code == 200
    assert answer.json()["usage"]["completion_tokens"] == 4
