"""The structs of the ABI are compared with the library's own, field by field."""

from ctypes import Structure, c_int32, c_void_p

import pytest

from sharpi.errors import SharpiError
from sharpi.experts.native.native_policy import policy_library
from sharpi.experts.native.store_abi import store_library
from sharpi.ops.cpu import abi, abi_recurrent
from sharpi.ops.cpu.library import load_library
from sharpi.ops.cpu.struct_layouts import check_layouts, layout_of, structs_of

pytestmark = pytest.mark.native
OPERATIONS = "sharpi_operation_layouts"


class Swapped(Structure):
    """SoftCapParams with two fields of one type in each other's place."""

    _fields_ = (
        ("x", c_void_p),
        ("rows", c_int32),
        ("width", c_int32),
        ("cap", c_int32),
        ("reserved", c_int32),
    )


class Longer(Structure):
    """SigmoidParams with a field too many."""

    _fields_ = (*abi.SigmoidParams._fields_, ("more", c_int32))


class Shorter(Structure):
    """SigmoidParams without its last field; the size is the same."""

    _fields_ = abi.SigmoidParams._fields_[:-1]


def test_every_struct_of_the_operations_is_compared() -> None:
    structs = structs_of(abi, abi_recurrent)
    check_layouts(load_library(), OPERATIONS, structs)
    assert len(structs) > len(abi.OpKind)
    assert {"Step", "StackedMatrixParams", "DeltaNetParams"} <= structs.keys()


@pytest.mark.parametrize(
    ("name", "struct"),
    [("SoftCapParams", Swapped), ("SigmoidParams", Longer), ("SigmoidParams", Shorter)],
)
def test_a_field_elsewhere_is_named(name: str, struct: type[Structure]) -> None:
    with pytest.raises(SharpiError, match=rf"another version \({name} differs\); run"):
        check_layouts(load_library(), OPERATIONS, {name: struct})


def test_a_library_that_tells_nothing_is_refused() -> None:
    with pytest.raises(SharpiError, match="another version"):
        check_layouts(load_library(), "sharpi_no_layouts", {"Step": abi.Step})


def test_the_experts_structs_are_compared_when_their_functions_are_typed() -> None:
    for library, function, name in (
        (policy_library(), "sharpi_policy_layouts", "PolicyParams"),
        (store_library(), "sharpi_store_layouts", "StoreParams"),
    ):
        with pytest.raises(SharpiError, match=name):
            check_layouts(library, function, {name: abi.Step})


def test_a_layout_has_each_field_and_the_end() -> None:
    assert layout_of(abi.SigmoidParams) == {"x": 0, "width": 8, "rows": 12, "": 16}
