"""The structs of the ABI are those of the headers, and of the library that was built."""

import runpy
from ctypes import Structure, c_int32, c_void_p
from pathlib import Path

import pytest

from sharpi.errors import SharpiError
from sharpi.experts.native.native_policy import policy_library
from sharpi.experts.native.store_abi import store_library
from sharpi.native import check_layouts, layout_of
from sharpi.ops.cpu import abi

KERNELS = Path(__file__).resolve().parents[3] / "kernels"


class Swapped(Structure):
    """GatherParams with two fields of one type in each other's place."""

    _fields_ = (
        ("out", c_void_p), ("x", c_void_p), ("width", c_int32), ("reserved", c_int32),
    )  # fmt: skip


def test_the_structs_of_operations_are_those_of_the_headers() -> None:
    """`make abi` writes them again."""
    written = runpy.run_path(str(KERNELS / "cpu" / "operations" / "write_abi.py"))["module"]()
    assert Path(abi.__file__).read_text(encoding="utf-8") == written


def test_a_layout_has_each_field_and_the_end() -> None:
    expected = {"x": 0, "out": 8, "width": 16, "reserved": 20, "": 24}
    assert layout_of(abi.GatherParams) == expected
    assert layout_of(Swapped) != expected


@pytest.mark.native
def test_the_experts_structs_are_compared_when_their_functions_are_typed() -> None:
    for library, function, name in (
        (policy_library(), "sharpi_policy_layouts", "PolicyParams"),
        (store_library(), "sharpi_store_layouts", "StoreParams"),
        (store_library(), "sharpi_no_layouts", "StoreParams"),
    ):
        with pytest.raises(SharpiError, match=rf"another version \({name} differs\); run"):
            check_layouts(library, function, {name: abi.Step})
