"""The compiled `sharpi` command: it finds its Python, and Ctrl-C while Python starts is silent."""

import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "packaging" / "launcher.cpp"
SCRIPT = ".sharpi-python"
COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")

# As an installer writes it, here with this Python.
START = "from sharpi.cli.start import launched; raise SystemExit(launched())"
STATUS = """
import signal
from pathlib import Path
from sharpi.cli import start
before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
def main():
    name = Path('/proc/self/comm').read_text().strip()
    print(signal.SIGINT in before, set(signal.pthread_sigmask(signal.SIG_BLOCK, ())), name)
start.main = main
start.launched()
"""


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("launcher") / "sharpi"
    assert COMPILER is not None
    subprocess.run([COMPILER, "-std=c++20", "-Wall", "-Werror", SOURCE, "-o", made], check=True)
    return made


@pytest.fixture
def environment(launcher: Path, tmp_path: Path) -> Callable[..., Path]:
    """Returns a function that makes a folder of programs with the launcher and a script in it."""

    def make(script: str = '#!/bin/sh\necho "$0|$*"\n', name: str = "venv bin") -> Path:
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(launcher, folder / "sharpi")
        (folder / SCRIPT).write_text(script)
        (folder / SCRIPT).chmod(0o755)
        return folder

    return make


def python(program: str) -> str:
    return f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n{program}\n"


def output(*command: object, **options: object) -> str:
    options = {"capture_output": True, "text": True, "check": True, **options}
    return str(subprocess.run(list(map(str, command)), **options).stdout)  # type: ignore[call-overload]


def test_the_installer_writes_the_script_that_is_looked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {SCRIPT: "sharpi.cli.start:launched"}
    assert f'"{SCRIPT}"' in SOURCE.read_text()


def test_arguments_are_handed_on(environment: Callable[..., Path]) -> None:
    folder = environment()
    assert output(folder / "sharpi", "run", "a b", "") == f"{folder}/{SCRIPT}|run a b \n"


def test_it_is_found_by_path_and_from_its_own_folder(environment: Callable[..., Path]) -> None:
    folder = environment()
    path = {"PATH": f"{folder}:{os.environ['PATH']}"}
    assert output("env", "sharpi", "x", env=path) == f"{folder}/{SCRIPT}|x\n"
    assert output("sh", "-c", "./sharpi x", cwd=folder) == f"./{SCRIPT}|x\n"


def test_links_lead_to_the_environment_that_they_name(
    environment: Callable[..., Path], tmp_path: Path
) -> None:
    """pipx, `uv tool` and people make such links; another install may own a script beside one."""
    folder = environment()
    other = environment(name="other")
    (other / "sharpi").unlink()
    (other / "sharpi").symlink_to(Path("..", folder.name, "sharpi"))
    (tmp_path / "s").symlink_to(other / "sharpi")
    for link in (other / "sharpi", tmp_path / "s"):
        assert Path(output(link).split("|")[0]).resolve() == folder / SCRIPT


def test_a_program_linked_to_a_store_takes_the_script_beside_the_link(
    environment: Callable[..., Path], launcher: Path
) -> None:
    """`uv pip install --link-mode symlink` links what a wheel holds, and writes the script."""
    folder = environment()
    (folder / "sharpi").unlink()
    (folder / "sharpi").symlink_to(launcher)
    assert output(folder / "sharpi") == f"{folder}/{SCRIPT}|\n"


def test_what_is_missing_is_said(environment: Callable[..., Path]) -> None:
    folder = environment("#!/no/such/python\n")
    for fault in (f"{folder}/{SCRIPT} or its Python cannot be started", f"{SCRIPT} is missing"):
        result = subprocess.run([folder / "sharpi"], capture_output=True, text=True, check=False)
        assert result.returncode == 127
        assert result.stderr.startswith(f"error: {fault}")
        (folder / SCRIPT).unlink(missing_ok=True)


def test_sharpi_undoes_what_the_launcher_did(environment: Callable[..., Path]) -> None:
    assert output(environment(python(STATUS)) / "sharpi") == "True set() sharpi\n"


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.004 * step for step in range(20)])
def test_ctrl_c_while_python_starts_is_silent(
    environment: Callable[..., Path], delay: float
) -> None:
    command = [environment(python(START)) / "sharpi", "chat"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job may ignore it
    ) as process:
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    # The system itself ends the launcher in its first instant.
    assert (process.returncode in (130, -signal.SIGINT), errors) == (True, b"")


def test_an_ignored_ctrl_c_stays_ignored(environment: Callable[..., Path]) -> None:
    """A script's background jobs ignore Ctrl-C."""
    with subprocess.Popen(
        [environment(python(START)) / "sharpi", "version"],
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    ) as process:
        for _ in range(10):
            process.send_signal(signal.SIGINT)
            time.sleep(0.005)
        assert process.communicate(timeout=60)[0].startswith(b"sharpi ")
    assert process.returncode == 0
