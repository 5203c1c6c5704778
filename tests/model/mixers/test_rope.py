"""Rotary tables: plain, linear, with divisors, and YaRN against its formula."""

import math

import numpy as np

from sharpi.model.mixers.rope import RopeScaling, rope_table


def test_plain_frequencies_are_powers_of_the_base() -> None:
    table = rope_table(8, 10000.0, RopeScaling())
    assert np.allclose(table.frequencies, [1, 0.1, 0.01, 0.001])
    assert table.scale == 1.0


def test_linear_scaling_slows_every_position() -> None:
    plain = rope_table(8, 10000.0, RopeScaling()).frequencies
    assert np.allclose(rope_table(8, 10000.0, RopeScaling("linear", 4.0)).frequencies, plain / 4)


def test_divisors_of_the_file_divide() -> None:
    divisors = np.array([1, 2, 4, 8], np.float32)
    plain = rope_table(8, 10000.0, RopeScaling()).frequencies
    assert np.allclose(
        rope_table(8, 10000.0, RopeScaling(), divisors).frequencies, plain / divisors
    )


def test_yarn_keeps_high_frequencies_and_interpolates_low_ones() -> None:
    scaling = RopeScaling("yarn", 8.0, original_context=4096)
    plain = rope_table(128, 10000.0, RopeScaling()).frequencies
    table = rope_table(128, 10000.0, scaling)
    rotations = 4096 * plain / (2 * math.pi)
    assert np.allclose(table.frequencies[rotations > 40], plain[rotations > 40])
    assert np.allclose(table.frequencies[rotations < 0.9], plain[rotations < 0.9] / 8)
    assert np.all(np.diff(table.frequencies) < 0)
    assert math.isclose(table.scale, 1 + 0.1 * math.log(8))
