"""The kernels with AVX-VNNI have the bits of those with AVX2, whose integers they share.

A processor with AVX-VNNI runs the library's own. One with AVX-512 VNNI runs the same source in that
encoding of the same instruction.
"""

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from build_cache import build_folder, built, digest
from for_each import for_each
from guarded_memory import GuardedMemory
from kernel_library import ACTIVATION, Bytes, Floats, has_isa, matmul, quantise
from numpy.typing import NDArray
from random_weights import QUANTISED_KINDS
from random_weights import random_weights as weights_of

from sharpi.gguf.quant_types import QuantType as Kind

Multiply = Callable[[Kind, Bytes, Floats], Floats]
KERNELS = Path(__file__).parents[2] / "kernels"
KERNEL = KERNELS / "cpu/matmul/matmul_avx_vnni.cpp"
FLAGS = "-std=c++20 -O0 -shared -fPIC -fvisibility=hidden -ffp-contract=fast -Wno-psabi"
SETS = "-mavx2 -mfma -mf16c -mbmi2 -mavx512vnni -mavx512vl"
TOKENS = (1, 2, 3, 4, 7)

pytestmark = [
    pytest.mark.native,
    pytest.mark.slow,
    pytest.mark.skipif(not has_isa("avx2"), reason="this machine has no AVX2"),
]


@pytest.fixture(scope="module")
def multiply() -> Multiply:
    """Multiplies with the kernels of AVX-VNNI."""
    if has_isa("avx_vnni"):
        return lambda kind, weights, x: matmul("avx_vnni", kind, weights, x)
    if not has_isa("avx512_vnni"):
        pytest.skip("this machine has no dot products: neither AVX-VNNI nor AVX-512 VNNI")
    if not shutil.which("g++"):
        pytest.skip("no g++")
    return in_other_encoding(ctypes.CDLL(str(build_driver())))


def build_driver() -> Path:
    """The kernels compiled for AVX-512 VNNI, built anew only when their text changes."""
    sources = [Path(__file__).with_name("avx_vnni_driver.cpp"), KERNELS / "cpu/quant/iq_points.cpp"]
    headers = [*sorted((KERNELS / "cpu").rglob("*.h")), *sorted(KERNELS.glob("*.h"))]
    texts = [path.read_text() for path in (*sources, *headers, KERNEL)]
    command = ["g++", *FLAGS.split(), *SETS.split(), f"-I{KERNELS / 'cpu'}", f"-I{KERNELS}"]
    target = build_folder() / f"avx-vnni-driver-{digest(FLAGS, SETS, *texts)}.so"
    return built(target, lambda path: subprocess.run([*command, "-o", path, *sources], check=True))


def in_other_encoding(library: ctypes.CDLL) -> Multiply:
    def multiply(kind: Kind, weights: Bytes, x: Floats) -> Floats:
        out = guarded(np.zeros((len(x), 32), np.float32))
        blocks = guarded(np.stack([quantise("avx2", row).view(np.uint8) for row in x]))
        status = library.multiply(
            int(kind),
            ctypes.c_void_p(weights.ctypes.data),
            weights.shape[1],
            len(weights),
            x.shape[1],
            ctypes.c_void_p(blocks.ctypes.data),
            blocks.shape[1] // ACTIVATION.itemsize,
            len(x),
            ctypes.c_void_p(out.ctypes.data),
        )
        assert status == 0
        return out[:, : len(weights)].copy()

    return multiply


def guarded(array: NDArray[Any]) -> NDArray[Any]:
    """Returns a copy whose lines are those of the processor's cache, as the kernels need it."""
    assert array.nbytes % 64 == 0
    return GuardedMemory(array.nbytes).holding(array)


def assert_same_bits(multiply: Multiply, kind: Kind, weights: Bytes, x: Floats) -> None:
    for tokens in TOKENS:
        mine, other = multiply(kind, weights, x[:tokens]), matmul("avx2", kind, weights, x[:tokens])
        np.testing.assert_array_equal(mine.view(np.uint32), other.view(np.uint32))


@for_each("rows", [5, 32])
@for_each("kind", QUANTISED_KINDS)
def test_random_codes(multiply: Multiply, kind: Kind, rows: int) -> None:
    rng = np.random.default_rng(rows)
    for columns in (256, 768) + (288,) * (288 % kind.block_values == 0):
        x = rng.standard_normal((TOKENS[-1], columns), np.float32)
        assert_same_bits(multiply, kind, weights_of(kind, rows, columns), x)


@for_each("code", [0x00, 0x7F, 0x80, 0xFF])
@for_each("kind", QUANTISED_KINDS)
def test_extreme_codes(multiply: Multiply, kind: Kind, code: int) -> None:
    weights = weights_of(kind, 32, 512, fill=code)
    x = np.repeat(np.float32([[3], [-3], [1], [-1], [2], [-2], [5]]), 512, axis=1)
    assert_same_bits(multiply, kind, weights, x)
