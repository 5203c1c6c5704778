"""The source of a CUDA kernel with its local headers inlined.

CuPy's cache of compiled kernels has this text as its key, and ignores changes of included headers.
"""

import re
from functools import cache
from pathlib import Path

from sharpi.resources import kernels_folder

_LOCAL_INCLUDE = re.compile(r'^\s*#include "([^"]+)"\s*$')


@cache
def kernel_source(name: str) -> str:
    """Returns the text of `<name>.cu`, with each local header inlined at its first include.

    The file may be in any folder of `kernels/cuda`. Raises FileNotFoundError if it does not exist.
    """
    folder = kernels_folder()
    path = _kernels(folder).get(name)
    if path is None:
        raise FileNotFoundError(f"{folder / 'cuda'} has no kernel {name}.cu")
    return "\n".join(_lines(path, folder, set()))


@cache
def waits_for_last_launch(name: str) -> bool:
    """Returns True if the kernels of `<name>.cu` wait for the preceding launch by themselves.

    They do so by calling `wait_for_last_launch` of launch_order.cuh.
    """
    return "wait_for_last_launch();" in kernel_source(name)


@cache
def _kernels(folder: Path) -> dict[str, Path]:
    """Returns the path of each .cu file under `kernels/cuda`, by name without suffix."""
    return {path.stem: path for path in (folder / "cuda").rglob("*.cu")}


def _lines(path: Path, folder: Path, seen: set[Path]) -> list[str]:
    seen.add(path)
    out = [f'#line 1 "{path.name}"']
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = _LOCAL_INCLUDE.match(line)
        if match is None:
            out.append("" if line.strip() == "#pragma once" else line)
            continue
        header = _find(match[1], path, folder)
        if header not in seen:
            out += _lines(header, folder, seen)
        out.append(f'#line {number + 1} "{path.name}"')
    return out


def _find(name: str, path: Path, folder: Path) -> Path:
    """Returns a header's path: beside the including file `path`, in `kernels/cuda` or `kernels`."""
    paths = (path.parent / name, folder / "cuda" / name)
    return next((path for path in paths if path.exists()), folder / name)
