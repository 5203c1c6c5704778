"""The quant types that CUDA kernels support; models with other types run on the CPU."""

from typing import Final, NoReturn

from sharpi.errors import UnsupportedModelError
from sharpi.gguf.quant_types import QuantType

GPU_TYPES: Final = frozenset(
    QuantType[name]
    for name in (
        "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K",
        "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS",
        "IQ3_S", "IQ1_S", "IQ1_M", "TQ1_0", "TQ2_0", "NVFP4", "Q1_0", "Q2_0",
    )
)  # fmt: skip


def raise_unsupported(what: str) -> NoReturn:
    """Raises UnsupportedModelError, which says that there are no CUDA kernels for `what`.

    If the model then runs on the CPU, the message becomes a note to the user.
    """
    raise UnsupportedModelError(f"there are no CUDA kernels for {what} yet")


def check_type(quant_type: QuantType) -> None:
    """Raises UnsupportedModelError for a quant type that no kernel reads."""
    if quant_type not in GPU_TYPES:
        raise_unsupported(f"{quant_type.name} weights")
