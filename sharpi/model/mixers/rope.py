"""Rotary position embedding: its frequencies, for each kind of scaling.

Sources: RoFormer (arXiv 2104.09864), YaRN (arXiv 2309.00071), and llama.cpp's GGUF conventions:
a `rope_freqs.weight` tensor divides the frequencies (Llama 3), linear scaling divides positions.
Temperature is the other effect of positions: it scales queries, so that attention stays sharp in
long contexts.
"""

import math
from typing import Generic

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from sharpi.errors import UnsupportedModelError
from sharpi.gguf.cursor import file_error, printable
from sharpi.gguf.metadata import Metadata
from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.model.spec import ArchitectureSpec
from sharpi.ops.attention_shape import Chosen, RopeTable
from sharpi.ops.interface import FloatArray, Ops, X

DoubleArray = npt.NDArray[np.float64]


class RopeScaling(Struct, frozen=True):
    """The rope scaling of a file; fields are named like its `rope.scaling.*` keys.

    With kind "divided", tensors of the file divide the frequencies. The file has one tensor for
    contexts up to `original_context`, and one for longer contexts (LongRoPE, arXiv 2402.13753).
    """

    kind: str = "none"  # "none", "linear", "yarn" or "divided"
    factor: float = 1.0
    original_context: int = 0  # in positions
    attention_factor: float = 0.0  # 0 stands for the YaRN paper's 1 + ln(factor) / 10
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    extrapolation: float = 1.0  # YaRN: how much of the unscaled frequencies is mixed in
    rounds_ramp: bool = True  # YaRN: the ramp begins and ends at whole pairs

    def with_factor(self, attention_factor: float) -> "RopeScaling":
        """Returns a copy with another attention factor."""
        return replace(self, attention_factor=attention_factor)


class Rope(Struct, frozen=True):
    """The settings of the rotary embedding of a layer's queries and keys."""

    dims: int  # the number of leading values of each head that are rotated
    base: float
    scaling: RopeScaling = RopeScaling()
    is_interleaved: bool = False  # pairs are (2i, 2i + 1) instead of (i, i + half)
    is_divided: bool = True  # divided by the file's divisors, if it has some


class Angles(Generic[X]):
    """What the layers of one step share: rotary angles, and the latest choice of an indexer.

    Angles are computed once for each rope, when first needed.
    """

    def __init__(self, ops: Ops[X], divisors: FloatArray | None) -> None:
        self._ops, self._divisors = ops, divisors
        self._known: dict[Rope, X] = {}
        self.chosen: Chosen[X] | None = None

    def rotate(self, x: X, num_heads: int, rope: Rope | None) -> X:
        """Returns x (heads * head_dim,) with its heads rotated, or unchanged if `rope` is None."""
        if rope is None:
            return x
        key = replace(rope, is_interleaved=False)
        if key not in self._known:
            divisors = self._divisors if rope.is_divided else None
            table = rope_table(rope.dims, rope.base, rope.scaling, divisors)
            self._known[key] = self._ops.rope_angles(table)
        return self._ops.rope(x, num_heads, self._known[key], rope.is_interleaved)


def read_scaling(metadata: Metadata, architecture: str, rounds_ramp: bool = True) -> RopeScaling:
    """Returns the rope scaling that the file's metadata state.

    Raises UnsupportedModelError for an unknown kind, ModelFileError for a factor below 0.
    """
    prefix = f"{architecture}.rope.scaling"
    divided = metadata.get_float(f"{prefix}.attn_factor", 0.0)
    if divided > 0:
        context = metadata.get_int(f"{prefix}.original_context_length")
        return RopeScaling("divided", original_context=context, attention_factor=divided)
    factor = metadata.get_float(f"{prefix}.factor", 0.0)
    if factor < 0:
        raise file_error(metadata.path, f"{prefix}.factor is {factor}, less than 0")
    kind = metadata.get_str(f"{prefix}.type", "linear" if factor else "none")
    if kind not in ("none", "linear", "yarn"):
        raise UnsupportedModelError(
            printable(
                f"{metadata.path}: {prefix}.type is {kind!r}; sharpi knows none, linear and yarn"
            )
        )
    if kind == "none" or factor == 0:
        return RopeScaling()
    return RopeScaling(
        kind=kind,
        factor=factor,
        original_context=metadata.get_int(
            f"{prefix}.original_context_length", metadata.get_int(f"{architecture}.context_length")
        ),
        attention_factor=metadata.get_float(f"{prefix}.yarn_attn_factor", 0.0),
        beta_fast=metadata.get_float(f"{prefix}.yarn_beta_fast", 32.0),
        beta_slow=metadata.get_float(f"{prefix}.yarn_beta_slow", 1.0),
        rounds_ramp=rounds_ramp,
    )


def rope_table(
    dims: int, base: float, scaling: RopeScaling, divisors: FloatArray | None = None
) -> RopeTable:
    """Returns the frequencies (dims / 2,) in radians per position, and the scale of the rotation.

    `divisors` (dims / 2,), if not None, divide the frequencies.
    """
    exponents = np.arange(0, dims, 2, dtype=np.float64) / dims
    frequencies = base**-exponents
    if divisors is not None:
        frequencies = frequencies / divisors
    scale = 1.0
    if scaling.kind == "linear":
        frequencies = frequencies / scaling.factor
    elif scaling.kind == "divided":
        scale = scaling.attention_factor
    elif scaling.kind == "yarn":
        frequencies = _yarn(frequencies, dims, base, scaling)
        scale = scaling.attention_factor or yarn_attention_factor(scaling.factor)
    return RopeTable(np.ascontiguousarray(frequencies, dtype=np.float32), scale)


def yarn_attention_factor(factor: float, multiplier: float = 1.0) -> float:
    """Returns what YaRN multiplies cosines and sines by; `factor` is that of the context."""
    return 1.0 + 0.1 * multiplier * math.log(factor)


def _yarn(frequencies: DoubleArray, dims: int, base: float, scaling: RopeScaling) -> DoubleArray:
    """Returns the frequencies scaled as in section 3.2 of the YaRN paper.

    High frequencies are kept, low ones are divided by the factor, with a ramp in between.
    """

    def dim_with_rotations(rotations: float) -> float:
        period = scaling.original_context / (rotations * 2 * math.pi)
        return dims * math.log(period) / (2 * math.log(base))

    low, high = map(dim_with_rotations, (scaling.beta_fast, scaling.beta_slow))
    if scaling.rounds_ramp:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(0.0, low), min(dims - 1.0, high)
    ramp = (np.arange(dims // 2) - low) / max(0.001, high - low)
    interpolated = np.clip(ramp, 0.0, 1.0)
    kept = (1 - interpolated) * scaling.extrapolation
    mixed = frequencies * kept + frequencies / scaling.factor * (1 - kept)
    return np.asarray(mixed, np.float64)


class Temperature(Struct, frozen=True):
    """Scales queries by 1 + rate * ln(1 + floor((position + offset) / interval)).

    Sources: the code of Llama 4 (offset 1) and of Mistral's models since 2025 (offset 0) in
    transformers.
    """

    interval: int  # positions
    rate: float
    offset: int

    def apply(self, ops: Ops[X], queries: X) -> X:
        """Returns the queries (heads * head_dim,) scaled by their positions."""
        return ops.scale_by_position(queries, self.interval, self.rate, self.offset)


def read_temperature(reader: HyperparameterReader, spec: ArchitectureSpec) -> Temperature | None:
    """Returns the temperature that the file or its architecture states; None if neither does.

    Files of Mistral's models state only the rate; the interval is then the original context of the
    rope scaling.
    """
    rate = reader.number("attention.temperature_scale", spec.temperature_rate)
    interval = reader.integer("attention.temperature_length", spec.temperature_interval)
    interval = interval or reader.integer("rope.scaling.original_context_length", 0)
    is_stated = reader.has("attention.temperature_scale")
    if not rate or (not interval and not is_stated):
        return None
    if interval <= 0:
        name = reader.name("attention.temperature_length")
        raise reader.fault(f"{name} is {interval}; a temperature needs the length of its steps")
    return Temperature(interval, rate, spec.temperature_offset)
