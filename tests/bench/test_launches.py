"""The launches of a decoded token, as docs/gpu.md states them for models of 48 layers."""

import re

import pytest
from gpu import launches

from sharpi.resources import kernels_folder

GUIDE = kernels_folder().parent / "docs" / "gpu.md"


def stated() -> list[list[int]]:
    """Returns the numbers of launches in the table: in all, without folding, and per layer."""
    row = re.compile(r"^\|.*\| ([\d,]+) \| ([\d,]+) \| (\d+) \|$", re.MULTILINE)
    return [[int(n.replace(",", "")) for n in found] for found in row.findall(GUIDE.read_text())]


@pytest.mark.parametrize("name", ["qwen3moe", "gpt-oss"])
def test_fewer_than_300_for_48_layers(name: str) -> None:
    assert launches.count(name, 48).total() < 300


@pytest.mark.slow
def test_the_guide_states_what_is_recorded() -> None:
    found = []
    for name, slots in launches.CASES:
        total, fewer = (launches.count(name, layers, slots=slots).total() for layers in (48, 47))
        plain = launches.count(name, 48, "folding", slots=slots).total()
        found.append([total, plain, total - fewer])
    assert found == stated()
