"""The program that emulated ARM processors run: every kernel, and a driver that calls them."""

import os
import re
import shutil
import subprocess
from collections import defaultdict
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
_WITH_NAMES_IN_COMMON = {"operations", "store"}  # folders whose files define the same names
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

        def compiled(source: Path) -> str:
            out = str(source.with_suffix(".o"))
            _run(COMPILER, *options, "-c", str(source), "-o", out)
            return out

        objects = list(pool.map(compiled, _joined(sources, Path(folder))))
        _run(COMPILER, "-static", "-pthread", *objects, "-o", str(target))


def _joined(sources: list[Path], folder: Path) -> list[Path]:
    """Writes sources that read the files of a folder together, in half the time of each alone."""
    together = defaultdict[str, list[Path]](list)
    for path in sources:
        name = path.parent.name
        together[path.stem if name in _WITH_NAMES_IN_COMMON else name].append(path)
    for name, paths in together.items():
        text = "".join(f'#include "{path}"\n' for path in paths)
        (folder / f"{name}.cpp").write_text(text)
    return [folder / f"{name}.cpp" for name in together]


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
