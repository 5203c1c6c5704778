"""Cases of attention, and what NumPy makes of them in float64."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from kv_pages import round_row

from sharpi.ops.attention_shape import AttentionShape
from sharpi.ops.cpu.kv_cache import hadamard
from sharpi.settings import KvType, KvTypes

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Case:
    positions: tuple[int, ...]
    num_heads: int = 4
    num_kv_heads: int = 2
    key_dim: int = 64
    value_dim: int = 64
    window: int = 0
    soft_cap: float = 0.0
    has_sinks: bool = False
    kv_type: KvType = "f16"
    value_type: KvType | None = None  # if it is not that of keys
    hadamard: int = 0  # the block in which values were transformed
    is_chunked: bool = False
    values_in_keys: bool = False

    @property
    def types(self) -> KvTypes:
        return KvTypes(self.kv_type, self.value_type or self.kv_type)

    @property
    def scale(self) -> float:
        return self.key_dim**-0.5

    @property
    def shape(self) -> AttentionShape:
        return AttentionShape(
            0, self.num_heads, self.num_kv_heads, self.key_dim, self.value_dim, self.scale,
            self.window, self.soft_cap, self.is_chunked,
        )  # fmt: skip

    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.key_dim + self.num_heads)

    def queries(self) -> Array:
        shape = (len(self.positions), self.num_heads, self.key_dim)
        return self.rng().normal(0, 2, shape).astype(np.float32)

    def cache(self) -> tuple[Array, Array]:
        """Keys and values (positions, KV heads, dim), before they are rounded."""
        rng, count = self.rng(), max(self.positions) + 1
        keys, values = (
            rng.normal(0, 1.5, (count, self.num_kv_heads, dim)).astype(np.float32)
            for dim in (self.key_dim, self.value_dim)
        )
        return keys, keys[..., : self.value_dim] if self.values_in_keys else values

    def sinks(self) -> Array | None:
        return (
            self.rng().normal(0, 2, self.num_heads).astype(np.float32) if self.has_sinks else None
        )

    def want(self) -> Array:
        """Computes attention in float64, with keys and values as the cache rounds them.

        The result is (T, heads * value_dim).
        """
        group = self.num_heads // self.num_kv_heads
        kinds = self.types.keys, self.types.values
        keys, values = (
            np.repeat(round_row(rows, kind), group, axis=1).astype(np.float64)
            for rows, kind in zip(self.cache(), kinds, strict=True)
        )
        scores = np.einsum("thd,phd->thp", self.queries().astype(np.float64), keys) * self.scale
        if self.soft_cap:
            scores = self.soft_cap * np.tanh(scores / self.soft_cap)
        distance = np.array(self.positions)[:, None] - np.arange(len(keys))
        seen = np.array(self.positions)[:, None] + 1
        if self.window:
            seen = (seen - 1) % self.window + 1 if self.is_chunked else np.array(self.window)
        visible = (distance >= 0) & (distance < seen)
        scores = np.where(visible[:, None], scores, -np.inf)
        sinks = self.sinks()
        peak = scores.max(axis=-1, keepdims=True)
        weights = np.exp(scores - peak)
        total = weights.sum(axis=-1, keepdims=True)
        if sinks is not None:
            total = total + np.exp(sinks[None, :, None] - peak)
        out = np.einsum("thp,phd->thd", weights / total, values)
        if self.hadamard:
            out = hadamard(out, self.hadamard)
        return out.reshape(len(distance), -1)
