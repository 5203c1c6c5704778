"""What an index and other systems are told: metadata, systems, compilers, and what is imported."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "kernels" / "cpu"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SERVER = {"starlette", "uvicorn", "prometheus-client", "llguidance", "huggingface_hub"}


def test_the_metadata_is_complete() -> None:
    assert all(PROJECT[key] for key in ("authors", "urls", "keywords", "license", "readme"))
    systems = [each for each in PROJECT["classifiers"] if each.startswith("Operating System")]
    assert systems == ["Operating System :: POSIX :: Linux"]


def test_the_server_comes_with_every_install() -> None:
    names = {each.partition(">")[0] for each in PROJECT["dependencies"]}
    assert names >= SERVER
    assert {"serve", "grammar", "hub"} <= set(PROJECT["optional-dependencies"])


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake")
def test_another_system_is_refused_in_a_sentence(tmp_path: Path) -> None:
    result = subprocess.run(
        ["cmake", "-S", str(KERNELS), "-B", str(tmp_path), "-DCMAKE_SYSTEM_NAME=FreeBSD"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode != 0
    text = " ".join(result.stderr.split())
    assert "sharpi runs on Linux alone" in text
    assert "This is FreeBSD." in text


@pytest.mark.skipif(shutil.which("clang++") is None, reason="no clang: apt-get install clang")
@pytest.mark.parametrize("file", ["vector/vector_ops_portable.cpp", "runtime/cpu_features.cpp"])
def test_clang_compiles(file: str) -> None:
    """The files use features of GCC, or names of processor features that clang learned late."""
    flags = ("-std=c++20", "-fsyntax-only", "-Wall", f"-I{KERNELS}", f"-I{KERNELS.parent}")
    subprocess.run(["clang++", *flags, str(KERNELS / file)], check=True)


@pytest.mark.slow
@pytest.mark.native
def test_no_answer_waits_for_the_gguf_package() -> None:
    """It brings requests and others along; `lint-imports` holds who may import it."""
    program = (
        "import sys; sys.modules['gguf'] = None; from sharpi.cli.main import main;"
        " sys.exit(main(['run', '-n', '1', '-p', 'A']))"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
