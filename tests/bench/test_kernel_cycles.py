"""The instructions without a jump whose cycles are predicted, cut out of a library's code."""

import platform
import shutil
from functools import cache

import pytest
from cpu.kernel_cycles import TYPES, Kernel, longest_line, read_kernels

# The products of each set, and the registers that 8 rows of 256 bytes fill.
SETS = (
    ("sse41", "pmaddubsw", 128),
    ("avx2", "vpmaddubsw", 64),
    ("avx_vnni", ("vpdpbusd", "{vex} vpdpbusd"), 64),
)
# Vector operations of 8 rows of 256 weights with AVX2: what a token of these types is bound by.
MOST_OPERATIONS = {"Q2_K": 365, "TQ2_0": 285, "Q4_K": 397, "Q5_K": 613}
MOST_WITH_DOTS = {"Q2_K": 330, "Q3_K": 476, "TQ2_0": 230}  # with AVX-VNNI
MOST_BROADCASTS = {"Q2_K": 80, "Q5_0": 18}
# Interleavings between two products, of all but a block's first rows: a step of columns has two,
# so has one of scales, and compilers move some.
MOST_TURNED_AT_ONCE = 6
LOOP = [
    ("10", "vpxor  %ymm0,%ymm0,%ymm0"),
    ("14", "vpaddd 0x20(%rip),%ymm0,%ymm0        # 40 <ones>"),
    ("1c", "vpaddd %ymm1,%ymm0,%ymm0"),
    ("20", "nopl   0x0(%rax)"),
    ("24", "jne    14 <kernel+0x4>"),
    ("26", "vmovdqa %ymm0,(%rdi)"),
]


@cache
def kernels() -> dict[tuple[str, str], Kernel]:
    """Returns the library's kernels by type and set; disassembling it takes two seconds."""
    return {(each.quant_type, each.instruction_set): each for each in read_kernels()}


def test_a_line_ends_where_jumps_lead_and_begin() -> None:
    assert longest_line(LOOP) == ["vpaddd 0(%rip),%ymm0,%ymm0", "vpaddd %ymm1,%ymm0,%ymm0"]


def test_operations_of_256_bits_are_two_on_an_e_core() -> None:
    code = ["vmovdqa (%rdi),%ymm0", "vpaddd %ymm1,%ymm0,%ymm0", "vpaddd %xmm1,%xmm0,%xmm0"]
    kernel = Kernel("Q4_0", "avx2", code)
    assert kernel.operations == code[1:]
    assert kernel.cycles_of_an_e_core == 1
    assert kernel.bytes_read == 8 * 8 * 18, "8 rows of 8 blocks"


@pytest.mark.slow
@pytest.mark.native
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the library is not for x86-64")
@pytest.mark.skipif(not shutil.which("objdump"), reason="no objdump: install binutils")
def test_the_library_has_a_line_of_each_type_and_set() -> None:
    for quant_type in TYPES:
        for name, product, registers in SETS:
            code = kernels()[quant_type, name].code
            products = sum(each.startswith(product) for each in code)
            assert products >= registers, (
                f"{quant_type}: 8 rows of 256 weights are {registers} registers of bytes"
            )


@pytest.mark.slow
@pytest.mark.native
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the library is not for x86-64")
@pytest.mark.skipif(not shutil.which("objdump"), reason="no objdump: install binutils")
def test_types_bound_by_the_processor_have_few_operations() -> None:
    every = kernels()
    for name, limits in (("avx2", MOST_OPERATIONS), ("avx_vnni", MOST_WITH_DOTS)):
        for quant_type, most in limits.items():
            assert len(every[quant_type, name].operations) <= most, (quant_type, name)
    for quant_type, most in MOST_BROADCASTS.items():
        code = every[quant_type, "avx2"].code
        broadcasts = [each for each in code if "broadcasts" in each]
        broadcasts += [each for each in code if each.startswith("vpbroadcast")]
        assert len(broadcasts) <= most, quant_type


def turned_at_once(code: list[str]) -> int:
    """Returns the most rows' interleavings between two products."""
    most, count, begun = 0, 0, False
    for each in code:
        if each.startswith("vpmaddubsw"):
            most, count, begun = max(most, count if begun else 0), 0, True
        count += each.startswith("vpunpck")
    return most


@pytest.mark.slow
@pytest.mark.native
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the library is not for x86-64")
@pytest.mark.skipif(not shutil.which("objdump"), reason="no objdump: install binutils")
def test_rows_are_turned_while_those_before_are_multiplied() -> None:
    for quant_type in ("Q2_K", "TQ2_0"):
        code = kernels()[quant_type, "avx2"].code
        assert turned_at_once(code) <= MOST_TURNED_AT_ONCE, quant_type
