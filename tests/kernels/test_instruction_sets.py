"""Code of an instruction set that a CPU may lack is only reachable after asking for the set."""

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from library_code import Function, initialisers, read_functions

from sharpi.ops.cpu.library import better_instruction_sets, instruction_set
from sharpi.resources import native_library

# The code that files of a set may hold besides plain code, and instructions for one file only.
VEX, EVEX, SSE41 = "VEX", "EVEX", "SSE4.1"
SETS = {
    "sse41": {SSE41},
    "avx2": {VEX},
    "avx_vnni": {VEX},
    "avx512": {VEX, EVEX},
    "avx512_vbmi": {VEX, EVEX},
    "avx512_bf16": {VEX, EVEX},
}
ONLY = {
    "avx_vnni": ("{vex}",),  # before instructions that AVX-512 has too
    "avx512_vbmi": ("vpermb", "vpermi2b", "vpermt2b", "vpmultishiftqb", "vgf2p8"),
    "avx512_bf16": ("vdpbf16ps", "vcvtne2ps2bf16", "vcvtneps2bf16"),
}
# The products of a tile whose weights are bytes of up to 127 or -128 with complements: IQ4, Q8_0.
SIGNED_TILE = re.compile(r"8multiplyI.*TileKindELi32ELb0ELi0ELi12[78]ELb0ELb0ELb1E")
PLANTED = """
template <class T> __attribute__((noinline)) T doubled(T x) { return x + x; }
extern "C" float shared_by_the_linker(float x) { return 3 * doubled(x); }
namespace { float at_load = shared_by_the_linker(2.f); float inner(const float* x) {
  float sum = 0; for (int i = 0; i < 64; i++) sum += x[i] * x[i]; return sum; } }
extern "C" float (*const table)(const float*) = inner;
extern "C" float* value() { return &at_load; }
"""

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the library is not for x86-64"),
    pytest.mark.skipif(not shutil.which("objdump"), reason="no objdump: install binutils"),
]


def set_of(function: Function) -> str:
    """The instruction set that a function's source file is named after; "" for none.

    A function cloned for several targets ends in the target's name; the loader asks the processor
    before it binds one.
    """
    stem = (function.source or "").removesuffix(".cpp")
    matching = (name for name in SETS if stem.endswith(f"_{name}"))
    clone = function.name.rpartition(".")[2] if function.source else ""
    return max(matching, key=len, default=clone if clone in SETS else "")


def faults(functions: list[Function]) -> list[str]:
    """Returns the code in functions where it does not belong."""
    found = []
    for each in functions:
        name = set_of(each)
        used = [VEX] * each.has_vex + [EVEX] * each.has_evex + [SSE41] * each.has_sse41
        wrong = [encoding for encoding in used if encoding not in SETS.get(name, set())]
        wrong += [
            mnemonic
            for owner, only in ONLY.items()
            for mnemonic in sorted(each.mnemonics)
            if owner != name and mnemonic.startswith(only)
        ]
        if wrong:
            found.append(f"{each.name} of {each.source}: {', '.join(wrong)}")
    return found


def initialisers_of_sets(library: Path) -> list[str]:
    """Returns the functions that run at load and come from a file of an instruction set."""
    functions = {each.name: each for each in read_functions(library)}
    return [name for name in initialisers(library) if set_of(functions[name])]


@pytest.mark.slow
def test_instructions_stay_in_the_functions_of_their_set() -> None:
    functions = read_functions(native_library())
    assert {set_of(each) for each in functions} == {"", *SETS}
    assert faults(functions) == []


@pytest.mark.slow
def test_nothing_of_a_set_runs_when_the_library_is_loaded() -> None:
    assert initialisers_of_sets(native_library()) == []


@pytest.mark.slow
def test_the_set_without_vex_is_told_from_the_baseline() -> None:
    newer = [each for each in read_functions(native_library()) if each.has_sse41]
    assert {set_of(each) for each in newer} == {"sse41"}


@pytest.mark.slow
def test_signs_of_weights_cost_many_tokens_a_complement() -> None:
    tiles = [each for each in read_functions(native_library()) if SIGNED_TILE.search(each.name)]
    assert {set_of(each) for each in tiles} == {"avx2"}
    assert len(tiles) == 2 * 4, "two kinds of weights, with one to four tokens at once"
    for each in tiles:
        assert "vpxor" in each.mnemonics
        slower = each.mnemonics & {"vpsignb", "vpabsb", "vcvtdq2ps"}
        assert not slower, f"{each.name} has {slower} for every product or sum"


def test_planted_mistakes_are_found(tmp_path: Path) -> None:
    source, library = tmp_path / "planted_avx2.cpp", tmp_path / "planted.so"
    source.write_text(PLANTED)
    subprocess.run(
        ["g++", "-O2", "-mavx2", "-shared", "-fPIC", "-o", str(library), str(source)], check=True
    )
    found = faults(read_functions(library))
    assert any("doubled" in each for each in found), "an inline function that the linker shares"
    assert any("shared_by_the_linker" in each for each in found), "a function that others call"
    assert not any("inner" in each for each in found)
    assert initialisers_of_sets(library) == ["_GLOBAL__sub_I_planted_avx2.cpp"]


def test_instructions_of_a_later_set_are_found() -> None:
    avx2 = Function("f", "matmul_avx2.cpp", has_vex=True, has_evex=True)
    plain = Function("g", "program.cpp", has_vex=True)
    bf16 = Function("h", "matmul_avx512.cpp", {"vdpbf16ps"}, has_vex=True, has_evex=True)
    sse41 = Function("i", "simd_portable.cpp", has_sse41=True)
    assert len(faults([avx2, plain, bf16, sse41])) == 4


def test_better_sets_say_what_they_need() -> None:
    better = better_instruction_sets()
    assert instruction_set() not in better
    assert all(features and all(features) for features in better.values())
