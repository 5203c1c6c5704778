"""The program that emulated ARM processors run: every kernel, and a driver that calls them."""

import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from build_cache import build_folder, built, digest

COMPILER = "aarch64-linux-gnu-g++"
EMULATORS = ("qemu-aarch64", "qemu-aarch64-static")
_FLAGS = ("-std=c++20", "-O2", "-ffp-contract=fast", "-Wall", "-Wno-psabi", "-pthread")
_SYSTEM_HEADER = re.compile(r"^ *#include (<\w+>)", re.MULTILINE)
_OF_OTHER_PROCESSORS = {"<immintrin.h>", "<cpuid.h>"}
_KERNELS = Path(__file__).parents[2] / "kernels"
_DRIVER = Path(__file__).with_name("neon_driver.cpp")


def missing_tools() -> list[str]:
    """Returns the tools that have to be installed before the emulated tests can run."""
    has_emulator = any(map(shutil.which, EMULATORS))
    return [COMPILER] * (not shutil.which(COMPILER)) + ["qemu-aarch64"] * (not has_emulator)


def build_driver() -> Path:
    """All kernels and the driver as one ARM program, built anew only when their text changes."""
    sources = [*sorted((_KERNELS / "cpu").rglob("*.cpp")), _DRIVER]
    headers = [*sorted((_KERNELS / "cpu").rglob("*.h")), *sorted(_KERNELS.glob("*.h"))]
    texts = [path.read_text(encoding="utf-8") for path in (*sources, *headers)]
    target = build_folder() / f"neon-driver-{digest(*_FLAGS, *texts)}"
    return built(target, partial(_build_driver, sources))


def _build_driver(sources: list[Path], target: Path) -> None:
    with TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        headers = _precompiled_headers(sources, Path(folder))
        options = [*_FLAGS, "-include", str(headers), f"-I{_KERNELS / 'cpu'}", f"-I{_KERNELS}"]

        def compiled(at: int) -> str:
            out = str(Path(folder) / f"{at}.o")
            _run(COMPILER, *options, "-c", str(sources[at]), "-o", out)
            return out

        objects = list(pool.map(compiled, range(len(sources))))
        _run(COMPILER, "-static", "-pthread", *objects, "-o", str(target))


def _precompiled_headers(sources: list[Path], folder: Path) -> Path:
    """The system's headers that the sources include; reading them takes most of the build."""
    names = {name for path in sources for name in _SYSTEM_HEADER.findall(path.read_text())}
    headers = folder / "system_headers.h"
    headers.write_text(
        "".join(f"#include {name}\n" for name in sorted(names - _OF_OTHER_PROCESSORS))
    )
    _run(COMPILER, *_FLAGS, "-x", "c++-header", str(headers), "-o", f"{headers}.gch")
    return headers


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
