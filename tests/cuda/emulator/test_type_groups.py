"""Quant types that are built together: all of them, each once, in the library that all share."""

import re

import pytest
from kernel_build import entry_points
from quant_weights import TYPES
from type_groups import FILES, GROUPS, build_defines

from sharpi.device.gpu_kernels import defines, kernel_source
from sharpi.device.launch import Kernel


def test_each_type_is_in_one_group() -> None:
    names = [name for group in GROUPS for name in group]
    assert sorted(names) == sorted(each.name.lower() for each in TYPES)


@pytest.mark.parametrize("file", sorted(FILES))
def test_the_types_of_a_group_share_a_library(file: str) -> None:
    """The library's source has a placeholder for the list of types."""
    assert re.search(r"^(QUANTISED|FLOAT)_TYPES\(", kernel_source(file), re.MULTILINE)
    for group in GROUPS:
        assert len({build_defines(Kernel(file, "any", name)) for name in group}) == 1


def test_other_kernels_are_built_for_what_is_launched() -> None:
    for kernel in (
        Kernel("experts_tiled_product", "any", "q4_k"),
        Kernel("attention", "any", "q8_0+q8_0", 4),
        Kernel("rms_norm", "any"),
    ):
        assert build_defines(kernel) == defines(kernel.quant_type, kernel.size)
    assert build_defines(Kernel("matvec", "any")) == ()


@pytest.mark.parametrize(
    ("file", "sizes"),
    [
        ("attention", (1, 2, 4, 8)),
        ("split_attention", (64, 128, 256, 512)),
        ("tiled_attention", (64, 128, 256, 512)),
        ("delta_net", (16, 32, 128)),
        ("kimi_delta", (16, 32, 128)),
        ("mamba2", (16, 32, 128)),
    ],
)
def test_a_size_compiles_its_own_entry_point(file: str, sizes: tuple[int, ...]) -> None:
    names = [entry_points(kernel_source(file), defines(None, size)) for size in sizes]
    assert all(
        re.search(rf"[a-z_]{size}(_F16_F16)?$", name)
        for size, (name,) in zip(sizes, names, strict=True)
    )
    assert sorted(name for (name,) in names) == entry_points(kernel_source(file), ())
