"""The difference between logits, and the instruction set whose attention is nearest a GPU's."""

import numpy as np

from sharpi.ops.cpu.library import instruction_set


def errors_by_token(logits: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Returns each token's norm of the difference over the reference's; both (T, vocabulary)."""
    return np.linalg.norm(logits - reference, axis=1) / np.linalg.norm(reference, axis=1)


def float_attention() -> str | None:
    """Returns the best instruction set here whose attention multiplies float32, as a GPU's does.

    AVX-512 may use bfloat16; None stands for the default set.
    """
    return "avx2" if instruction_set().startswith("avx512") else None
