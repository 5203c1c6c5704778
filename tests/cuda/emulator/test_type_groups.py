"""Quant types that are built together: all of them, each once, in the library that all share."""

import re

import pytest
from quant_weights import TYPES
from type_groups import FILES, GROUPS, build_defines

from sharpi.device.kernel_source import kernel_source
from sharpi.device.launch import Kernel
from sharpi.device.nvrtc import defines


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
        Kernel("attention", "any", "q8_0+q8_0"),
        Kernel("rms_norm", "any"),
    ):
        assert build_defines(kernel) == defines(kernel.quant_type)
    assert build_defines(Kernel("matvec", "any")) == ()
