"""The orthonormal Hadamard transform, which rotates keys and values before they are quantised."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def hadamard(x: Array, block: int) -> Array:
    """Applies the Hadamard transform to each block of `block` numbers of x's last dimension.

    `block` is a power of two that divides this dimension. Applying the transform twice yields x.
    """
    matrix = np.ones((1, 1))
    while len(matrix) < block:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    blocks = x.reshape(*x.shape[:-1], -1, block)
    return np.asarray((blocks @ matrix / np.sqrt(block)).reshape(x.shape), np.float32)
