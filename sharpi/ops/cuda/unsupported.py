"""The operations of `Ops` that have no CUDA kernels: a model that needs one runs on the CPU."""

from typing import Final, NoReturn

from sharpi.errors import UnsupportedModelError
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.values import Value
from sharpi.ops.interface import FloatArray
from sharpi.ops.recurrent import ConvolutionShape, DecayRates, DeltaNetShape, Mamba2Shape

CARD_TYPES: Final = frozenset(
    QuantType[name]
    for name in (
        "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K",
        "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4",
    )
)  # fmt: skip


def refuse(what: str) -> NoReturn:
    """Raises UnsupportedModelError, which the choice of a processor turns into a note."""
    raise UnsupportedModelError(f"there are no CUDA kernels for {what} yet")


def check_type(quant_type: QuantType) -> None:
    """Raises UnsupportedModelError for weights that no kernel reads."""
    if quant_type not in CARD_TYPES:
        refuse(f"{quant_type.name} weights")


class UnsupportedOnCard:
    """Says of each what the card lacks."""

    def convolve(
        self,
        x: Value,
        weight: FloatArray,
        bias: FloatArray | None,
        shape: ConvolutionShape,
        *,
        silu: bool,
    ) -> Value:
        refuse("short convolutions")

    def delta_net(
        self, qkv: Value, beta: Value, alpha: Value, rates: DecayRates, shape: DeltaNetShape
    ) -> Value:
        refuse("gated delta nets")

    def mamba2(
        self, xbc: Value, dt: Value, rates: DecayRates, skip: FloatArray, shape: Mamba2Shape
    ) -> Value:
        refuse("Mamba-2 layers")
