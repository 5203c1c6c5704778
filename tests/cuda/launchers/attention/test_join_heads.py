"""Heads that are prepared and put behind other values in one launch: the bits of two launches."""

import numpy as np
import pytest
from device_arrays import empty, read, upload
from products import random_tokens

from sharpi.device.device import Device
from sharpi.device.launch import Launch, Span
from sharpi.ops.cuda.launchers.attention.heads import (
    HeadGroup,
    HeadNorm,
    HeadRope,
    heads,
    with_join,
)
from sharpi.ops.cuda.launchers.elementwise import join

TOKENS, HALF = 2, 16


def launches(
    device: Device, num_heads: int, width: int, dim: int, norms: bool, interleaved: bool
) -> tuple[Launch, Launch, list[Span]]:
    """Returns the preparation of heads, the join behind `width` values, and what they write."""
    first = upload(device, random_tokens(TOKENS, num_heads * width))
    second = upload(device, random_tokens(TOKENS, num_heads * dim, 1))
    angles = upload(device, random_tokens(TOKENS, 2 * HALF, 2))
    weight = upload(device, random_tokens(1, dim, 3))
    out = empty(device, 4 * TOKENS * num_heads * (width + dim))
    norm = HeadNorm(weight, 1e-6) if norms else None
    group = HeadGroup(second, num_heads, dim, norm, HeadRope(angles, HALF, interleaved))
    joined = join(first, second, out, widths=(width, dim), runs=TOKENS * num_heads)
    return heads([group], tokens=TOKENS), joined, [second, out]


@pytest.mark.parametrize("norms", [False, True])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("num_heads", "width", "dim"), [(1, 512, 64), (5, 96, 32), (3, 7, 40)])
def test_bits_are_those_of_two_launches(
    device: Device, num_heads: int, width: int, dim: int, interleaved: bool, norms: bool
) -> None:
    found = []
    for folds in (False, True):
        pair = launches(device, num_heads, width, dim, norms, interleaved)
        both = with_join(*pair[:2])
        assert both is not None
        for launch in [both] if folds else pair[:2]:
            device.launch(launch)
        found.append([read(device, each, np.uint8, (each.num_bytes,)) for each in pair[2]])
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


def test_what_is_not_joined(device: Device) -> None:
    prepared, joined, (second, out) = launches(device, 2, 32, 32, False, False)
    other = empty(device, second.num_bytes)
    sizes = {"widths": (32, 32), "runs": 2 * TOKENS}
    assert with_join(prepared, joined) is not None
    assert with_join(prepared, join(second, other, out, **sizes)) is None
    assert with_join(prepared, join(second, second, out, **sizes)) is None
    assert with_join(prepared, join(other, second, out, widths=(96, 16), runs=8)) is None
    group = HeadGroup(second, 2, 32)
    stored = HeadGroup(second, 2, 32, pages=other)
    assert with_join(heads([group, HeadGroup(other, 2, 32)], tokens=TOKENS), joined) is None
    assert with_join(heads([stored], tokens=TOKENS), joined) is None
