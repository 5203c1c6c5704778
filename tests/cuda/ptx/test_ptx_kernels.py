"""Kernels as the PTX that NVRTC makes of them, against the same text compiled for the CPU."""

import re
from collections.abc import Callable

import kernel_cases as cases
import numpy as np
import pytest
from cpu_device import CpuDevice
from msgspec.structs import replace
from ptx_device import PtxDevice, installed, ptx_device
from ptx_engine import PtxFault

from sharpi.device.device import Device
from sharpi.device.launch import Launch

Case = Callable[[Device], cases.Result]
EXACT = [
    *(cases.rms_norm, cases.quantise, cases.matvec, cases.route, cases.group_routes),
    *(cases.slot_route, cases.join_heads, cases.experts_product),
]


@pytest.mark.parametrize("architecture", [75, 90])
@pytest.mark.parametrize("case", EXACT, ids=lambda case: case.__name__)
def test_same_bits(case: Case, architecture: int) -> None:
    device = ptx_device(architecture)
    np.testing.assert_array_equal(case(device), case(CpuDevice()))
    assert device.executed[next(name for name in device.executed if case.__name__ in name)] > 100


@pytest.mark.parametrize("architecture", [75, 90])
def test_rotation(architecture: int) -> None:
    """NVRTC joins products and sums that g++ rounds apart."""
    found, want = cases.heads(ptx_device(architecture)), cases.heads(CpuDevice())
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=4e-6)


class _Early(PtxDevice):
    """Says of every launch that it may begin before the preceding one has ended."""

    def launch(self, launch: Launch) -> None:
        super().launch(replace(launch, is_dependent=True))


def test_kernels_wait_for_earlier_launches() -> None:
    toolkit = installed()
    cases.rms_norm(_Early(toolkit, 90))
    with pytest.raises(PtxFault, match="before earlier launches have ended"):
        cases.rms_norm(_Early(toolkit, 90, lambda text: text.replace("griddepcontrol.wait;", "")))


def _changed(text: str, instead: str) -> PtxDevice:
    return ptx_device(80, lambda ptx: re.sub(text, instead, ptx))


@pytest.mark.parametrize(
    ("case", "text", "instead", "says"),
    [
        (cases.rms_norm, r"bar.sync \t0;", "", "race|read before it is written"),
        (cases.rms_norm, r"(st.global.f32 \t\[%rd\d+)", r"\1+4608", "4-byte write"),
        (cases.quantise, r"st.global.u8( \t\[%rd\d+)", r"st.global.u32\1", "misaligned"),
    ],
)
def test_forbidden_ptx_is_found(case: Case, text: str, instead: str, says: str) -> None:
    with pytest.raises(PtxFault, match=says):
        case(_changed(text, instead))


@pytest.mark.parametrize(
    ("case", "text", "instead"),
    [
        (cases.matvec, "dp4a.s32.s32", "dp4a.u32.s32"),
        (cases.rms_norm, "shfl.sync.bfly.b32", "shfl.sync.up.b32"),
    ],
)
def test_other_ptx_gives_other_results(case: Case, text: str, instead: str) -> None:
    assert not np.array_equal(case(_changed(text, instead)), case(ptx_device(80)))
