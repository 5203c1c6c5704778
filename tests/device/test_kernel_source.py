"""A kernel's text stands alone: every local header is in it, once, and lines keep their names."""

import re
from pathlib import Path

import pytest
from for_each import for_each

from sharpi.device.gpu_kernels import kernel_source, own_options
from sharpi.resources import kernels_folder

NAMES = sorted(path.stem for path in (kernels_folder() / "cuda").rglob("*.cu"))
# NVRTC finds the first for CuPy from 13.6 on, in its wheel or that of CUDA's runtime.
# The other is only for C++ on the CPU.
HEADERS = {"cuda_fp16.h", "stdint.h"}
_PLACE = re.compile(r'#line (\d+) "(.+)"')


@for_each("name", NAMES)
def test_stands_alone(name: str) -> None:
    assert not re.search(r'#include "', kernel_source(name))
    assert "#pragma once" not in kernel_source(name)
    assert set(re.findall("#include <(.+)>", kernel_source(name))) <= HEADERS


@for_each("name", NAMES)
def test_lines_keep_their_names(name: str) -> None:
    """Each line stands in the file and at the line that the compiler will name."""
    files = [*(kernels_folder() / "cuda").rglob("*.cu*"), *kernels_folder().glob("*.h")]
    lines = {path.name: path.read_text(encoding="utf-8").splitlines() for path in files}
    file, number = "", 0
    for line in kernel_source(name).splitlines():
        if place := _PLACE.match(line):
            file, number = place[2], int(place[1])
            continue
        assert line in (lines[file][number - 1], ""), f"{file}:{number}"
        number += 1


@for_each("name", NAMES)
def test_headers_come_once(name: str) -> None:
    starts = [place[2] for place in _PLACE.finditer(kernel_source(name)) if place[1] == "1"]
    assert len(starts) == len(set(starts))
    assert starts[0] == f"{name}.cu"


def test_a_header_of_both_languages_is_found() -> None:
    assert "struct BlockQ4_K" in kernel_source("matvec")


def test_a_missing_header_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "alone.cu").write_text('#include "gone.cuh"\n')
    monkeypatch.setattr("sharpi.device.gpu_kernels.kernels_folder", lambda: tmp_path)
    with pytest.raises(FileNotFoundError, match=r"gone\.cuh"):
        kernel_source("alone")


def test_options() -> None:
    assert own_options() == ("-std=c++17",)
    assert own_options("q4_k") == ("-std=c++17", "-DONLY_Q4_K")
    assert own_options(size=64) == ("-std=c++17", "-DONLY_SIZE=64")
