"""What `make run` does before its first command: names what is missing, makes or mends .venv."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec import Struct

SCRIPT = Path(__file__).parents[2] / "packaging" / "set_up.sh"
TOOLS = (
    *("bash", "env", "cat", "dirname", "basename", "uname", "ls", "rm", "mkdir", "cp", "chmod"),
    *("tail", "grep", "sleep", "nproc", "touch", "head"),
)
# A Python of a given version, whose environments hold a copy of itself. Modules that are named in
# NO_MODULES are missing; `pip install` writes down what it was given.
PYTHON = """#!/usr/bin/env bash
version={version}
case "$1 $2" in
  "-c "*version_info*) [[ $version != 3.[0-9] && $version != 3.10 ]] ;;
  "-c "*python_version*) echo "$version.1" ;;
  "-c "*) [[ -z ${{NO_MODULES-}} ]] ;;
  "-m venv")
    mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && touch "$3/pyvenv.cfg"
    [[ -z ${{VENV_FAILS-}} ]] ;;
  "-m pip")
    [[ ! -e $(dirname "$0")/no-pip ]] || {{ echo "No module named pip" >&2; exit 1; }}
    [[ $3 == --version ]] || echo "$@" >> "$PWD/installed"
    [[ $* != *-e* ]] || echo "${{PIP_SAYS-}}"
    [[ $* != *-e* ]] || sleep "${{PIP_SLEEPS:-0}}"
    [[ $* != *-e* || -z ${{INSTALL_FAILS-}} ]] || {{ echo "CMake says why"; exit 1; }} ;;
esac
"""


class Machine(Struct):
    """A machine whose PATH has few programs, with a checkout."""

    folder: Path

    def has(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def has_python(self, name: str, version: str) -> None:
        self.has(name, PYTHON.format(version=version))

    def set_up(self, *asked: str, **variables: str) -> subprocess.CompletedProcess[str]:
        script = self.folder / "checkout" / "packaging" / "set_up.sh"
        return subprocess.run(
            [str(script), ".venv", *asked],
            env={"PATH": str(self.folder / "bin"), **variables},
            text=True,
            capture_output=True,
            timeout=60,
        )

    @property
    def venv(self) -> Path:
        return self.folder / "checkout" / ".venv"

    @property
    def installed(self) -> list[str]:
        path = self.folder / "checkout" / "installed"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with a Python, a compiler and CMake."""
    (tmp_path / "bin").mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None
        os.symlink(found, tmp_path / "bin" / name)
    (tmp_path / "checkout" / "packaging").mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / "checkout" / "packaging")
    made = Machine(tmp_path)
    made.has_python("python3", "3.12")
    made.has("g++", "#!/bin/sh\n")
    made.has("cmake", "#!/bin/sh\n")
    return made


def is_refused(result: subprocess.CompletedProcess[str], *words: str) -> bool:
    """Says if the script failed with an error whose line has all the words."""
    *_, line = result.stderr.splitlines()
    return result.returncode == 1 and line.startswith("error: ") and all(w in line for w in words)


def test_a_new_environment(machine: Machine) -> None:
    result = machine.set_up()
    assert result.returncode == 0, result.stderr
    steps = result.stderr.splitlines()
    assert [line[:5] for line in steps[:3]] == ["[1/3]", "[2/3]", "[3/3]"]
    assert "with Python 3.12.1" in steps[0]
    assert "compiles its kernels: about" in steps[2]
    assert steps[3].startswith("done after 0 min")
    assert (machine.venv / ".installed").exists()
    tools, sharpi = machine.installed
    assert "scikit-build-core" in tools
    assert sharpi.endswith("--no-build-isolation -e .")


def test_a_second_time_the_environment_stays(machine: Machine) -> None:
    machine.set_up()
    (machine.venv / "kept").touch()
    result = machine.set_up()
    assert "[1/3]" not in result.stderr
    assert (machine.venv / "kept").exists()
    assert (machine.venv / ".installed").exists()


def test_no_python(machine: Machine) -> None:
    (machine.folder / "bin" / "python3").unlink()
    assert is_refused(
        machine.set_up(), "Python 3.11 or newer is missing", "apt-get install python3"
    )
    assert not machine.venv.exists()


def test_the_python_that_was_asked_for_is_too_old(machine: Machine) -> None:
    machine.has_python("python3.10", "3.10")
    assert is_refused(machine.set_up("python3.10"), "python3.10 is Python 3.10.1", "3.11 or newer")
    assert not machine.venv.exists()


def test_the_default_python_is_too_old(machine: Machine) -> None:
    machine.has_python("python3", "3.9")
    machine.has_python("python3.13", "3.13")
    assert "with Python 3.13.1" in machine.set_up().stderr


def test_a_python_without_venv(machine: Machine) -> None:
    result = machine.set_up(NO_MODULES="1")
    assert is_refused(result, "cannot make environments", "apt-get install python3-venv")
    assert not machine.venv.exists()


def test_no_compiler(machine: Machine) -> None:
    (machine.folder / "bin" / "g++").unlink()
    assert is_refused(machine.set_up(), "the C++ compiler is missing", "apt-get install g++ make")
    assert not machine.venv.exists()


def test_a_compiler_without_cpp_20(machine: Machine) -> None:
    machine.has("g++", "#!/bin/sh\nexit 1\n")
    assert is_refused(machine.set_up(), "g++ does not compile C++20")
    assert not machine.venv.exists()


def test_another_system(machine: Machine) -> None:
    (machine.folder / "bin" / "uname").unlink()
    machine.has("uname", "#!/bin/sh\necho Darwin\n")
    assert is_refused(machine.set_up(), "sharpi runs on Linux", "This is Darwin.")


@pytest.mark.parametrize("version", ["3.12", "3.10"])
def test_an_environment_that_is_no_good_is_made_anew(machine: Machine, version: str) -> None:
    """An environment without pip, as Debian's venv leaves it, or one of an older Python."""
    machine.set_up()
    (machine.venv / "bin" / "python").write_text(PYTHON.format(version=version))
    if version == "3.12":
        (machine.venv / "bin" / "no-pip").touch()
    result = machine.set_up()
    assert result.returncode == 0
    assert "made anew" in result.stderr
    assert not (machine.venv / "bin" / "no-pip").exists()
    assert (machine.venv / ".installed").exists()


def test_another_python_that_is_asked_for_is_taken(machine: Machine) -> None:
    machine.set_up()
    machine.has_python("python3.13", "3.13")
    assert "with Python 3.13.1" in machine.set_up("python3.13").stderr


def test_half_an_environment_is_not_left(machine: Machine) -> None:
    assert is_refused(machine.set_up(VENV_FAILS="1"), "could not be made with")
    assert not machine.venv.exists()


def test_another_folder_of_that_name_is_not_deleted(machine: Machine) -> None:
    machine.venv.mkdir()
    (machine.venv / "thesis.txt").touch()
    assert is_refused(machine.set_up(), "is no environment of Python")
    assert (machine.venv / "thesis.txt").exists()


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ("  Downloading https://host/numpy-2.3.5-cp311.whl (16.9 MB)", "fetches numpy (16.9 MB)"),
        ("  [29/78] Building CXX object a.o", "compiled 29 of 78 files"),
    ],
)
def test_it_says_how_far_it_is_without_a_terminal(
    machine: Machine, output: str, shown: str
) -> None:
    result = machine.set_up(PIP_SAYS=output, PIP_SLEEPS="2", SHARPI_SETUP_SECONDS_A_LINE="0")
    assert result.returncode == 0
    assert any(line.strip().startswith(shown) for line in result.stderr.splitlines())


def test_further_packages(machine: Machine) -> None:
    machine.set_up()
    script = machine.folder / "checkout" / "packaging" / "set_up.sh"
    command = [str(script), "--packages", ".venv", "the packages of the tests", "pytest>=8"]
    result = subprocess.run(
        command, env={"PATH": str(machine.folder / "bin")}, text=True, capture_output=True
    )
    assert (result.returncode, result.stderr) == (0, "installs the packages of the tests\n")
    assert machine.installed[-1].endswith("pytest>=8")


def test_no_network(machine: Machine) -> None:
    line = "WARNING: Retrying (Retry(total=0)) after connection broken by 'NameResolutionError'"
    result = machine.set_up(INSTALL_FAILS="1", PIP_SAYS=line)
    assert is_refused(result, "could not be installed", "cannot be reached over the network")


def test_an_install_that_fails_says_why(machine: Machine) -> None:
    result = machine.set_up(INSTALL_FAILS="1")
    assert is_refused(result, "could not be installed", ".venv/install.log")
    assert "CMake says why" in result.stderr
    assert not (machine.venv / ".installed").exists()
